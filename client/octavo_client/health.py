"""Whether a server answers, and to whom."""

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from octavo_client.addresses import SERVICE
from octavo_client.channel import LOCAL_OPTIONS, OPTIONS

PROBE_OPTIONS = (*LOCAL_OPTIONS, ("grpc.min_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 500))
SECONDS = 5.0
NOBODY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def answers(address: str, credentials: grpc.ChannelCredentials | None = None) -> bool:
    """Whether requests would be served at "HOST:PORT" or "unix:PATH"; in plain text without credentials."""
    try:
        return bool(_check(address, credentials) == health_pb2.HealthCheckResponse.SERVING)
    except grpc.RpcError:
        return False


def speaks_plainly(address: str) -> bool:
    """Whether somebody answers there in plain text, whatever the answer is."""
    try:
        _check(address, None)
    except grpc.RpcError as error:
        return error.code() not in NOBODY
    return True


def _check(address: str, credentials: grpc.ChannelCredentials | None) -> int:
    request = health_pb2.HealthCheckRequest(service=SERVICE)
    with (
        grpc.insecure_channel(address, options=PROBE_OPTIONS)
        if credentials is None
        else grpc.secure_channel(address, credentials, options=OPTIONS)
    ) as channel:
        return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=SECONDS).status)
