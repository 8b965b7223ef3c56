"""`python -m octavo_scheduler.keys OUT_DIR`: all secrets of a deployment, each where only its user needs it.

    OUT_DIR/scheduler/  scheduler.key(_secret)  allow/worker.key  tls.crt  tls.key  token
    OUT_DIR/worker/     worker.key(_secret)     scheduler.key
    OUT_DIR/client/     ca.crt                  token

Files that are there are never replaced: a complete set is left as it is, and an incomplete one is an error, because new
keys beside old ones would fit nobody.
"""

import argparse
import datetime
import ipaddress
import os
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

from octavo_scheduler.errors import StartError
from octavo_scheduler.link import make_curve_keys

ROLES = ("scheduler", "worker", "client")
# What makes a deployment complete. The allow-list is the operator's: a key taken off it must stay off.
FILES = (
    *("scheduler/scheduler.key_secret", "scheduler/scheduler.key", "scheduler/tls.crt", "scheduler/tls.key"),
    *("scheduler/token", "worker/worker.key_secret", "worker/worker.key", "worker/scheduler.key"),
    *("client/ca.crt", "client/token"),
)


def make_keys(out: Path, names: Sequence[str]) -> bool:
    """Makes all files unless all are there; says whether it did. Raises StartError where only some are there.

    Each of the three folders may be a volume of its own in a place that cannot be written otherwise, so they are filled
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
        shutil.copy(made / "scheduler" / "tls.crt", made / "client" / "ca.crt")
        token = secrets.token_urlsafe(32)
        for role in ("scheduler", "client"):
            _write(made / role / "token", token.encode())
        for role in ROLES:
            shutil.copytree(made / role, out / role, dirs_exist_ok=True)
    return True


def _curve_keys(made: Path) -> None:
    for role in ("scheduler", "worker"):
        make_curve_keys(made / role, role)
        (made / role / f"{role}.key_secret").chmod(0o600)
    (made / "scheduler" / "allow").mkdir()
    shutil.copy(made / "worker" / "worker.key", made / "scheduler" / "allow" / "worker.key")
    shutil.copy(made / "scheduler" / "scheduler.key", made / "worker" / "scheduler.key")


def _certificate(folder: Path, names: Sequence[str]) -> None:
    """A self-signed certificate for ten years; clients trust exactly this one."""
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
    options = parser.parse_args(arguments)
    try:
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
    sys.exit(main())
