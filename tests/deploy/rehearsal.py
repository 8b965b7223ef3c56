"""Where a deployment is rehearsed without containers.

Paths of volumes are moved below one folder and addresses to loopback; all else (entry points, commands, mounts) is what
docker-compose.yml and the Dockerfiles say.
"""

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from tests.deploy.images import PREFIX, ROOT, entrypoint, read_stages
from tests.processes import running, wait_until_serving


@dataclass(frozen=True)
class Rehearsal:
    """Services as Compose resolves them, the environment of each, and the place of volumes and model."""

    services: dict[str, Any]
    environments: dict[str, Path]
    keys: Path
    model: Path
    step_port: int

    def places(self, service: str) -> dict[str, Path]:
        """Path in the container to path here, for each mount. The volume `worker-keys` lies in keys/worker."""
        mounts = {mount["target"]: mount for mount in self.services[service]["volumes"]}
        volumes = {target: self.keys / mount["source"].removesuffix("-keys") for target, mount in mounts.items()}
        binds = {target: self.model for target, mount in mounts.items() if mount["type"] == "bind"}
        return {"/keys": self.keys, **volumes, **binds, PREFIX: self.environments[service]}

    def moved(self, service: str, arguments: list[str], address: str = "127.0.0.1:0") -> list[str]:
        """Arguments as they read outside a container, with gRPC on `address`."""
        steps = f"127.0.0.1:{self.step_port}"
        moves = {
            "0.0.0.0:50051": address,
            "127.0.0.1:50051": address,
            "0.0.0.0:8080": "127.0.0.1:0",
            "0.0.0.0:5555": steps,
            "scheduler:5555": steps,
        }
        moves.update((target, str(place)) for target, place in self.places(service).items())
        pattern = "|".join(re.escape(target) for target in sorted(moves, key=len, reverse=True))
        return [re.sub(pattern, lambda match: moves[match[0]], argument) for argument in arguments]

    def start_line(self, service: str) -> list[str]:
        definition = self.services[service]
        stages = read_stages((ROOT / definition["build"]["dockerfile"]).read_text())
        start = definition.get("entrypoint") or entrypoint(stages, definition["build"].get("target", ""))
        return self.moved(service, [*start, *definition["command"]])

    def variables(self, service: str) -> dict[str, str]:
        return {
            "PATH": f"{self.environments[service] / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
        }

    def run(self, service: str, command: list[str]) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **self.variables(service)}
        return subprocess.run(command, env=environment, cwd=self.model, capture_output=True, text=True)

    def make_keys(self) -> None:
        """Run the one-shot service. Its volumes exist, empty at first, as mount points that cannot be replaced."""
        for place in self.places("keys").values():
            place.mkdir(parents=True, exist_ok=True)
        result = self.run("keys", self.start_line("keys"))
        assert result.returncode == 0, result.stderr

    def channel(self, address: str) -> grpc.Channel:
        """A channel as a client on the host opens it, with nothing but the client's volume."""
        return grpc.secure_channel(address, grpc.ssl_channel_credentials((self.keys / "client/ca.crt").read_bytes()))

    def client_metadata(self) -> list[tuple[str, str]]:
        return [("authorization", f"Bearer {(self.keys / 'client/token').read_text().strip()}")]

    @contextmanager
    def up(self, *, workers: int) -> Iterator[str]:
        """Keys, scheduler, and so many workers that share one key; yields the address of the gRPC service."""
        self.make_keys()
        with ExitStack() as stack:
            ready = r"serving .* on ([\d.]+:\d+)"
            command, env = self.start_line("scheduler"), self.variables("scheduler")
            address = stack.enter_context(running(command, ready=ready, env=env))[1]
            for number in range(workers):  # in containers the host name tells them apart
                command = [*self.start_line("worker"), f"--worker-id=worker-{number}"]
                stack.enter_context(running(command, ready="joined", env=self.variables("worker")))
            with self.channel(address) as channel:
                wait_until_serving(channel, self.client_metadata())
            yield address


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
