"""The scheduler's command line, read once into a frozen record."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo_scheduler.access import TlsFiles, require_keys
from octavo_scheduler.core import Settings
from octavo_scheduler.errors import StartError
from octavo_scheduler.limits import MAX_FRONTENDS, MAX_REQUEST_SECONDS
from octavo_scheduler.link import CurveFiles
from octavo_scheduler.lock import socket_path

LONGEST_SOCKET_PATH = 107
"""Bytes; the system's own limit."""
MOST_PORT = 65535


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that an operator chooses."""

    model: Path
    served_model_name: str | None
    max_context: int | None = None
    """Tokens; None: the model's."""
    listen: str
    workers: str
    settings: Settings
    tls: TlsFiles | None
    token_file: Path | None
    admin_token_file: Path | None
    admin_listen: str | None
    """Where AdminService is served, if not at `listen`."""
    curve: CurveFiles | None
    http: str | None = None
    """Where the page, the metrics and JSON are served, if anywhere."""
    traces: str | None = None
    """URL of the collector that gets a span for each request, if any."""
    lifeline: int | None
    log_level: str
    record: Path | None = None
    """The log to write of all that the core does."""
    record_tokens: bool = False
    grace: float = 30.0
    """Seconds that running streams may go on after SIGTERM."""
    frontends: int = 0
    """Processes that serve clients beside each other; 0: this one does."""

    def __post_init__(self) -> None:
        if not 0 <= self.grace <= MAX_REQUEST_SECONDS:
            raise StartError(f"--grace {self.grace:g} must lie in [0, {MAX_REQUEST_SECONDS:g}] seconds")
        check_listen("--listen", self.listen)
        if not 0 <= self.frontends <= MAX_FRONTENDS:
            raise StartError(f"--frontends {self.frontends} must lie in [0, {MAX_FRONTENDS}]")
        if self.frontends and self.listen.startswith("unix:"):
            raise StartError(
                f"--frontends shares a TCP port, and {self.listen} is a socket file: use --listen HOST:PORT"
            )
        check_workers(self.workers)
        require_keys(
            self.listen,
            has_keys=self.tls is not None and self.token_file is not None,
            remedy="give --tls-cert, --tls-key and --token-file (octavo keys makes them)",
        )
        require_keys(
            self.workers,
            has_keys=self.curve is not None,
            remedy="give --curve-key and --curve-allow (octavo keys makes them)",
        )
        if self.admin_listen is not None:
            check_listen("--admin-listen", self.admin_listen)
            require_keys(
                self.admin_listen,
                has_keys=self.tls is not None and self.admin_token_file is not None,
                remedy="give --tls-cert, --tls-key and --admin-token-file (octavo keys makes them)",
            )
        if self.http is not None:
            check_listen("--http", self.http)
            require_keys(
                self.http,
                has_keys=self.tls is not None and self.token_file is not None,
                remedy="give --tls-cert, --tls-key and --token-file (octavo keys makes them)",
            )
        if self.traces is not None and not self.traces.startswith(("http://", "https://")):
            raise StartError(f"--traces {self.traces} is neither http://HOST:PORT nor https://HOST:PORT")
        if self.admin_token_file is not None and self.token_file is None:
            raise StartError("--admin-token-file needs --token-file too: without it clients need no token at all")


def check_listen(flag: str, address: str) -> None:
    """Raises StartError for anything but HOST:PORT and unix:PATH."""
    if address.startswith("unix:"):
        _check_path(flag, address)
    elif "://" in address:
        raise StartError(f"{flag} {address} is neither HOST:PORT nor unix:PATH")
    else:
        _check_port(flag, address, address)


def check_workers(address: str) -> None:
    """Raises StartError for anything but tcp://HOST:PORT, where the port may be *, and ipc://PATH."""
    if address.startswith("ipc://"):
        _check_path("--workers", address)
    elif address.startswith("tcp://"):
        if not address.endswith(":*"):
            _check_port("--workers", address, address.removeprefix("tcp://"))
    else:
        raise StartError(f"--workers {address} is neither tcp://HOST:PORT nor ipc://PATH")


def _check_port(flag: str, address: str, host_and_port: str) -> None:
    _, colon, port = host_and_port.rpartition(":")
    if not colon or not port or port.endswith("]"):  # [::1] is a host alone
        raise StartError(f"{flag} {address} has no port")
    if not (port.isascii() and port.isdigit()):
        raise StartError(f"{flag} {address} has a port that is not a number: {port}")
    if len(port) > len(str(MOST_PORT)) or int(port) > MOST_PORT:
        raise StartError(f"{flag} {address} has a port above {MOST_PORT}")


def _check_path(flag: str, address: str) -> None:
    path = socket_path(address)
    if path == Path():
        raise StartError(f"{flag} {address} names no file")
    if path is not None and len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        raise StartError(f"{flag} {address} is longer than the {LONGEST_SOCKET_PATH} bytes of a socket's path")


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="octavo scheduler", description="Schedule requests onto workers. Needs no GPU.")
    p.add_argument("--model", type=Path, required=True, help="model folder or .gguf file (weights are not read)")
    p.add_argument("--served-model-name", help="name that clients use; default: the folder's or file's")
    p.add_argument("--max-context", type=int, help="longest sequence that is served, in tokens; default: the model's")
    p.add_argument("--listen", default="127.0.0.1:50051", help="gRPC address, HOST:PORT or unix:PATH")
    p.add_argument(
        "--frontends", type=int, default=Config.frontends, metavar="N", help="serve --listen by N further processes"
    )
    p.add_argument("--admin-listen", help="gRPC address of AdminService; default: --listen serves it too")
    p.add_argument("--http", metavar="ADDRESS", help="serve the web page, /metrics and JSON there; default: nowhere")
    p.add_argument("--traces", metavar="URL", help="send a span for each request to this OTLP/gRPC collector")
    p.add_argument("--workers", default="tcp://127.0.0.1:50052", help="address that workers dial, tcp:// or ipc://")
    p.add_argument("--max-num-seqs", type=int, default=Settings.max_num_seqs, help="most sequences running on a worker")
    p.add_argument("--max-step-tokens", type=int, default=Settings.max_step_tokens, help="token budget of a step")
    p.add_argument("--max-chunk", type=int, help="most tokens of one sequence in a step; default: the whole budget")
    _add_policy(p.add_argument_group("policy", "who goes first, and how much may wait"))
    p.add_argument("--preempt", choices=("auto", "swap", "drop"), default="auto", help="how victims give up pages")
    p.add_argument("--no-prefix-cache", action="store_true", help="compute every prompt from its first token")
    p.add_argument("--plans-in-flight", type=int, default=Settings.plans_in_flight, help="1 or 2")
    p.add_argument("--record", type=Path, metavar="FILE", help="record what the core does, for `octavo replay`")
    p.add_argument("--record-tokens", action="store_true", help="with token ids, tenants and salts as they are")
    _add_keys(p.add_argument_group("keys", "who may connect; octavo keys makes all of them"))
    p.add_argument("--grace", type=float, default=Config.grace, help="seconds for running streams after SIGTERM")
    p.add_argument("--lifeline", type=int, help="file descriptor whose end of file ends this process")
    p.add_argument("--log-level", default="WARNING", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
    return p


def _add_keys(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--tls-cert", type=Path, metavar="FILE", help="certificate of the scheduler, PEM")
    add("--tls-key", type=Path, metavar="FILE", help="its private key, PEM")
    add("--client-ca", type=Path, metavar="FILE", help="let in only clients with a certificate of these (mutual TLS)")
    add("--token-file", type=Path, metavar="FILE", help="tokens of clients, one a line")
    add("--admin-token-file", type=Path, metavar="FILE", help="tokens of administrators, who may do everything")
    add("--curve-key", type=Path, metavar="FILE", help="CURVE secret key of the scheduler (.key_secret)")
    add("--curve-allow", type=Path, metavar="FOLDER", help="public keys of workers that may join")


def _add_policy(group: argparse._ArgumentGroup) -> None:
    s = Settings
    add = group.add_argument
    add(
        "--policy", choices=("fair", "fcfs"), default=s.policy, help="between requests of one priority; fair: by tenant"
    )
    add("--tenant-weight", action="append", default=[], metavar="TENANT=WEIGHT", help="share of a tenant; default: 1")
    add("--max-wait", type=float, default=s.max_wait_seconds, metavar="SECONDS", help="then priorities count less")
    add("--max-queued-requests", type=int, default=s.max_queued_requests, help="more are refused")
    add(
        "--max-queued-tokens", type=int, default=s.max_queued_tokens, help="tokens of waiting prompts; more are refused"
    )
    add("--max-tenant-queued-requests", type=int, help="the same for each tenant; default: no limit of its own")
    add("--max-tenant-queued-tokens", type=int, help="the same for each tenant; default: no limit of its own")
    add(
        "--max-tenant-share", type=float, default=s.max_tenant_share, help="of a worker's pages, for one tenant; (0, 1]"
    )


def _weights(pairs: Sequence[str]) -> dict[str, float]:
    weights: dict[str, float] = {}
    for pair in pairs:
        tenant, _, weight = pair.rpartition("=")
        try:
            weights[tenant] = float(weight)
        except ValueError:
            raise StartError(f"--tenant-weight {pair} is not TENANT=WEIGHT") from None
    return weights


def _settings(o: argparse.Namespace) -> Settings:
    try:
        return Settings(
            max_num_seqs=o.max_num_seqs,
            max_step_tokens=o.max_step_tokens,
            max_chunk=o.max_chunk,
            policy=o.policy,
            tenant_weights=_weights(o.tenant_weight),
            max_wait_seconds=o.max_wait,
            max_queued_requests=o.max_queued_requests,
            max_queued_tokens=o.max_queued_tokens,
            max_tenant_queued_requests=o.max_tenant_queued_requests,
            max_tenant_queued_tokens=o.max_tenant_queued_tokens,
            max_tenant_share=o.max_tenant_share,
            preempt=o.preempt,
            prefix_cache=not o.no_prefix_cache,
            plans_in_flight=o.plans_in_flight,
        )
    except ValueError as error:
        raise StartError(str(error)) from error


def read_config(arguments: Sequence[str] | None = None) -> Config:
    """Raises StartError with a sentence that says what to mend."""
    o = parser().parse_args(arguments)
    tls = _pair("--tls-cert", o.tls_cert, "--tls-key", o.tls_key)
    if o.client_ca is not None and tls is None:
        raise StartError("--client-ca asks clients for a certificate, which takes TLS; give --tls-cert and --tls-key")
    curve = _pair("--curve-key", o.curve_key, "--curve-allow", o.curve_allow)
    return Config(
        model=o.model,
        served_model_name=o.served_model_name,
        max_context=o.max_context,
        listen=o.listen,
        workers=o.workers,
        settings=_settings(o),
        tls=TlsFiles(*tls, o.client_ca) if tls else None,
        token_file=o.token_file,
        admin_token_file=o.admin_token_file,
        admin_listen=o.admin_listen,
        http=o.http,
        traces=o.traces,
        curve=CurveFiles(*curve) if curve else None,
        lifeline=o.lifeline,
        log_level=o.log_level,
        record=o.record,
        record_tokens=o.record_tokens,
        grace=o.grace,
        frontends=o.frontends,
    )


def _pair(one: str, first: Path | None, other: str, second: Path | None) -> tuple[Path, Path] | None:
    if first is None and second is None:
        return None
    if first is None or second is None:
        raise StartError(f"{one} and {other} belong together")
    return first, second
