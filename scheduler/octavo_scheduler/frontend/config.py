"""The command line of a front process, which its scheduler writes."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from octavo_scheduler.access import TlsFiles
from octavo_scheduler.config import Config
from octavo_scheduler.errors import StartError
from octavo_scheduler.frontend.wire import PROTOCOL


@dataclass(frozen=True, kw_only=True)
class FrontendConfig:
    """Of one front process. The first fields are the scheduler's own flags."""

    model: Path
    served_model_name: str | None
    max_context: int | None
    listen: str
    tls_cert: Path | None
    tls_key: Path | None
    client_ca: Path | None
    token_file: Path | None
    admin_token_file: Path | None
    traces: str | None
    log_level: str
    folder: Path
    """Where the sockets are that the scheduler and its front processes share."""
    number: int
    """Of this one, counted from 0."""
    count: int
    """Of all."""
    stay: str
    """Of this process; another one has another."""
    lifeline: int
    """File descriptor whose end of file means that the scheduler is gone."""
    protocol: int = PROTOCOL
    """The scheduler's."""

    @classmethod
    def of(
        cls, config: Config, *, listen: str, folder: Path, number: int, stay: str, lifeline: int
    ) -> "FrontendConfig":
        """Serving what the scheduler would serve."""
        tls = config.tls
        return cls(
            model=config.model,
            served_model_name=config.served_model_name,
            max_context=config.max_context,
            listen=listen,
            tls_cert=tls.certificate if tls else None,
            tls_key=tls.key if tls else None,
            client_ca=tls.client_ca if tls else None,
            token_file=config.token_file,
            admin_token_file=config.admin_token_file,
            traces=config.traces,
            log_level=config.log_level,
            folder=folder,
            number=number,
            count=config.frontends,
            stay=stay,
            lifeline=lifeline,
        )

    @property
    def tls(self) -> TlsFiles | None:
        return TlsFiles(self.tls_cert, self.tls_key, self.client_ca) if self.tls_cert and self.tls_key else None

    @property
    def steps(self) -> str:
        """Where the scheduler takes commands and gives outputs."""
        return steps(self.folder)

    @property
    def inner(self) -> str:
        """Where it answers what only it can."""
        return inner(self.folder)

    @property
    def siblings(self) -> list[str]:
        """The address of each front process for the others, its own included."""
        return [f"unix:{self.folder}/front-{number}" for number in range(self.count)]

    @property
    def arguments(self) -> list[str]:
        """As `read_frontend_config` reads them."""
        values = ((field.name.replace("_", "-"), getattr(self, field.name)) for field in fields(self))
        return [f"--{name}={value}" for name, value in values if value is not None]


def steps(folder: Path) -> str:
    return f"ipc://{folder}/steps"


def inner(folder: Path) -> str:
    return f"unix:{folder}/inner"


def read_frontend_config(arguments: Sequence[str] | None = None) -> FrontendConfig:
    """Raises StartError for a scheduler of another installation."""
    p = argparse.ArgumentParser(
        prog="python -m octavo_scheduler.frontend",
        description="Serve clients for a scheduler, which starts this program: see octavo scheduler --frontends.",
    )
    for name in ("model", "folder"):
        p.add_argument(f"--{name}", type=Path, required=True)
    for name in ("listen", "stay", "log-level"):
        p.add_argument(f"--{name}", required=True)
    for name in ("number", "count", "lifeline", "protocol"):
        p.add_argument(f"--{name}", type=int, required=True)
    for name in ("tls-cert", "tls-key", "client-ca", "token-file", "admin-token-file"):
        p.add_argument(f"--{name}", type=Path)
    for name in ("served-model-name", "traces"):
        p.add_argument(f"--{name}")
    p.add_argument("--max-context", type=int)
    config = FrontendConfig(**vars(p.parse_args(arguments)))
    if config.protocol != PROTOCOL:
        raise StartError(
            f"the scheduler speaks version {config.protocol} of the front protocol and this installation {PROTOCOL}; "
            "restart the scheduler"
        )
    return config
