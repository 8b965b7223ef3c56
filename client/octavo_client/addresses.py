"""Where a server may be. Nothing here imports gRPC, which takes a while."""

import re

SERVICE = "octavo.v1.InferenceService"
DEFAULT_ADDRESS = "127.0.0.1:50051"
LOCAL = re.compile(r"unix:.+|unix-abstract:.+|(ipv4:)?127(\.\d{1,3}){3}:\d+|localhost:\d+|(ipv6:)?\[::1\]:\d+")


def is_local(address: str) -> bool:
    """Says whether the address cannot be reached from another machine."""
    return LOCAL.fullmatch(address) is not None
