"""Hosts made of network namespaces: each has a name, an address and a cable to one switch, and nothing else."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

NETWORK = "10.87.65"


@dataclass(frozen=True)
class Host:
    """One of them."""

    namespace: str
    address: str
    port: str
    """Its cable's end at the switch."""
    switch: str

    def command(self, words: Sequence[str]) -> list[str]:
        """Runs on this host."""
        return ["ip", "netns", "exec", self.namespace, *words]

    def unplug(self) -> None:
        """Nothing comes from it or gets to it any more, and nobody is told."""
        ip(f"-n {self.switch} link set {self.port} down")


def ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True, capture_output=True, text=True)


def can_make_hosts() -> bool:
    """It takes root and iproute2."""
    if os.geteuid() != 0:
        return False
    name = f"octavo-try-{os.getpid()}"
    try:
        ip(f"netns add {name}")
        ip(f"netns del {name}")
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


@contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """So many, on one switch."""
    prefix, made = f"octavo-{os.getpid()}", list[str]()

    def namespace(name: str) -> str:
        ip(f"netns add {name}")
        made.append(name)
        ip(f"-n {name} link set lo up")
        return name

    try:
        switch = namespace(f"{prefix}-switch")
        ip(f"-n {switch} link add bridge type bridge")
        ip(f"-n {switch} link set bridge up")
        yield [plugged_in(namespace(f"{prefix}-{number}"), switch, number) for number in range(1, count + 1)]
    finally:
        for name in made:
            ip(f"netns del {name}")


def plugged_in(name: str, switch: str, number: int) -> Host:
    """The host `name`, with its cable."""
    host = Host(name, f"{NETWORK}.{number}", f"port{number}", switch)
    ip(f"-n {name} link add eth0 type veth peer name {host.port} netns {switch}")
    ip(f"-n {name} addr add {host.address}/24 dev eth0")
    ip(f"-n {name} link set eth0 up")
    ip(f"-n {switch} link set {host.port} master bridge")
    ip(f"-n {switch} link set {host.port} up")
    return host
