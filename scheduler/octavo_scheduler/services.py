"""What clients are served, at whichever endpoint: names of services, and their servicers over one front."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

import grpc
from octavo.foreign import kserve_pb2, kserve_pb2_grpc, vllm_engine_pb2, vllm_engine_pb2_grpc
from octavo.v1 import inference_pb2, inference_pb2_grpc

from octavo_scheduler.compat.kserve import KserveService
from octavo_scheduler.compat.vllm_engine import VllmEngine
from octavo_scheduler.errors import StartError
from octavo_scheduler.front import Front
from octavo_scheduler.questions import Posts
from octavo_scheduler.service import InferenceService

if TYPE_CHECKING:
    from octavo_scheduler.traces import Traces

INFERENCE = inference_pb2.DESCRIPTOR.services_by_name["InferenceService"]
VLLM = vllm_engine_pb2.DESCRIPTOR.services_by_name["VllmEngine"]
KSERVE = kserve_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]


class ClientServices:
    """One of each for each front, at however many endpoints it is served."""

    def __init__(self, front: Front, loop: Posts) -> None:
        self.inference = InferenceService(front, loop)
        self._vllm = VllmEngine(front, loop)
        self._kserve = KserveService(front, loop)

    def serve(self, server: grpc.aio.Server) -> list[str]:
        """Adds them; their names."""
        inference_pb2_grpc.add_InferenceServiceServicer_to_server(self.inference, server)
        vllm_engine_pb2_grpc.add_VllmEngineServicer_to_server(self._vllm, server)
        kserve_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self._kserve, server)
        return [service.full_name for service in (INFERENCE, VLLM, KSERVE)]


def trace(front: Front, url: str | None) -> "tuple[Traces | None, list[grpc.aio.ServerInterceptor]]":
    """Sends a span for each request of the front there, if anywhere. What has to be closed, and what endpoints need."""
    if url is None:
        return None, []
    if find_spec("opentelemetry") is None:
        raise StartError("--traces needs OpenTelemetry: pip install 'octavo[otel]'")
    from octavo_scheduler.traces import TraceInterceptor, Traces

    traces = Traces.to(url, front.model.name)
    front.trace = traces.request
    return traces, [TraceInterceptor()]
