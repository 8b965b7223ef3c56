"""Whether a server of this machine answers."""

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from octavo_client.addresses import SERVICE
from octavo_client.channel import LOCAL_OPTIONS

PROBE_OPTIONS = (*LOCAL_OPTIONS, ("grpc.min_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 500))


def answers(address: str) -> bool:
    """Whether requests would be served at `address`, a loopback address or "unix:PATH"."""
    with grpc.insecure_channel(address, options=PROBE_OPTIONS) as channel:
        request = health_pb2.HealthCheckRequest(service=SERVICE)
        try:
            response = health_pb2_grpc.HealthStub(channel).Check(request, timeout=5)
        except grpc.RpcError:
            return False
        return bool(response.status == health_pb2.HealthCheckResponse.SERVING)
