"""`python -m octavo_scheduler.keys OUT_DIR`: all secrets of a deployment, each where only its user needs it.

    OUT_DIR/scheduler/  scheduler.key(_secret)  allow/worker.key  tls.crt  tls.key  client-ca.crt  token  admin-token
    OUT_DIR/worker/     worker.key(_secret)     scheduler.key
    OUT_DIR/client/     ca.crt                  token             tls.crt  tls.key
    OUT_DIR/admin/      ca.crt                  token             tls.crt  tls.key

The certificates of client and administrator are for `octavo scheduler --client-ca`, and of no use without it.

With --add-worker NAME a set that is there gets one more worker, OUT_DIR/worker-NAME and allow/NAME.key, so that each machine
can have a key of its own and be shut out alone.

Files that are there are never replaced: a complete set is left as it is, and an incomplete one is an error, because new
keys beside old ones would fit nobody.
"""

import argparse
import datetime
import ipaddress
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from octavo.audit import refuse_unpickling

from octavo_scheduler.errors import StartError
from octavo_scheduler.limits import MAX_ECHO
from octavo_scheduler.link import make_curve_keys

ROLES = ("scheduler", "worker", "client", "admin")
CALLERS = ("client", "admin")
# What makes a deployment complete. The allow-list is the operator's: a key taken off it must stay off.
FILES = (
    *("scheduler/scheduler.key_secret", "scheduler/scheduler.key", "scheduler/tls.crt", "scheduler/tls.key"),
    *("scheduler/client-ca.crt", "scheduler/token", "scheduler/admin-token"),
    *("worker/worker.key_secret", "worker/worker.key", "worker/scheduler.key"),
    *(f"{role}/{name}" for role in CALLERS for name in ("ca.crt", "token", "tls.crt", "tls.key")),
)


def make_keys(out: Path, names: Sequence[str]) -> bool:
    """Makes all files unless all are there; says whether it did. Raises StartError where only some are there.

    Each of the four folders may be a volume of its own in a place that cannot be written otherwise, so they are filled
    and never replaced.
    """
    missing = [file for file in FILES if not (out / file).is_file()]
    if not missing:
        return False
    if len(missing) < len(FILES):
        raise StartError(
            f"{out} lacks {', '.join(missing)}, and other keys are there; put back what is missing, or remove the rest "
            "to make all of them anew"
        )
    with tempfile.TemporaryDirectory() as work:
        made = Path(work)
        for role in ROLES:
            (made / role).mkdir(mode=0o700)
        _curve_keys(made)
        _certificate(made / "scheduler", names)
        for role, name in zip(CALLERS, ("token", "admin-token"), strict=True):
            shutil.copy(made / "scheduler" / "tls.crt", made / role / "ca.crt")
            _certificate(made / role, [f"octavo-{role}"])
            token = secrets.token_urlsafe(32).encode()
            _write(made / role / "token", token)
            _write(made / "scheduler" / name, token)
        trusted = b"".join((made / role / "tls.crt").read_bytes() for role in CALLERS)
        _write(made / "scheduler" / "client-ca.crt", trusted)
        for role in ROLES:
            shutil.copytree(made / role, out / role, dirs_exist_ok=True)
    return True


def add_worker(out: Path, name: str) -> None:
    """A key for one more worker, put on the allow-list. Raises StartError."""
    if not re.fullmatch(r"\w[\w.-]{0,63}", name):
        raise StartError(f"{name[:MAX_ECHO]!r} is no name for a worker's key: letters, digits, dots and dashes are")
    own, allowed = out / f"worker-{name}", out / "scheduler" / "allow" / f"{name}.key"
    if own.exists() or allowed.exists():
        raise StartError(f"{out} has a worker named {name} already")
    if not allowed.parent.is_dir():
        raise StartError(f"{out} holds no keys yet; make them first, without --add-worker")
    own.mkdir(mode=0o700)
    make_curve_keys(own, "worker")
    (own / "worker.key_secret").chmod(0o600)
    shutil.copy(out / "worker" / "scheduler.key", own / "scheduler.key")
    shutil.copy(own / "worker.key", allowed)


def _curve_keys(made: Path) -> None:
    for role in ("scheduler", "worker"):
        make_curve_keys(made / role, role)
        (made / role / f"{role}.key_secret").chmod(0o600)
    (made / "scheduler" / "allow").mkdir()
    shutil.copy(made / "worker" / "worker.key", made / "scheduler" / "allow" / "worker.key")
    shutil.copy(made / "scheduler" / "scheduler.key", made / "worker" / "scheduler.key")


def _certificate(folder: Path, names: Sequence[str]) -> None:
    """A self-signed certificate for ten years; the other side trusts exactly this one."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    today = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=3650))
        .add_extension(x509.SubjectAlternativeName([_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    )
    certificate = builder.sign(key, hashes.SHA256())
    _write(folder / "tls.crt", certificate.public_bytes(serialization.Encoding.PEM))
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write(folder / "tls.key", secret)


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write(path: Path, content: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="octavo keys", description="Make the keys of a deployment.")
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--dns", nargs="+", default=[], metavar="NAME", help="names or addresses clients dial")
    parser.add_argument("--add-worker", metavar="NAME", help="a key for one more worker, in OUT_DIR/worker-NAME")
    options = parser.parse_args(arguments)
    try:
        if options.add_worker is not None:
            add_worker(options.out, options.add_worker)
            print(
                f"octavo keys: made {options.out}/worker-{options.add_worker}; send the scheduler SIGHUP to let it in"
            )
            return 0
        made = make_keys(options.out, [*options.dns, "localhost", "127.0.0.1"])
    except StartError as error:
        print(f"octavo keys: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"octavo keys: {options.out} cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    print(f"octavo keys: {'made' if made else 'kept'} {options.out}/{{{','.join(ROLES)}}}")
    return 0


if __name__ == "__main__":
    refuse_unpickling()
    sys.exit(main())
