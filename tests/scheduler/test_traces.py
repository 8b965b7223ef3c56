"""Spans as a collector gets them."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from octavo.v1 import inference_pb2
from octavo_client.params import SamplingParams
from octavo_scheduler.config import read_config
from octavo_scheduler.errors import StartError
from octavo_scheduler.model import ServedModel

from tests.doubles.paper_service import paper_service
from tests.doubles.paper_worker import PaperWorker
from tests.patience import until

service_pb2 = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector:
    """Takes spans over OTLP."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        export: Any = grpc.unary_unary_rpc_method_handler(
            self._export, service_pb2.ExportTraceServiceRequest.FromString, lambda message: message.SerializeToString()
        )
        name = "opentelemetry.proto.collector.trace.v1.TraceService"
        self.server = grpc.server(ThreadPoolExecutor(1))
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(name, {"Export": export})])
        self.url = f"http://127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def _export(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.spans += [span for resource in request.resource_spans for s in resource.scope_spans for span in s.spans]
        return service_pb2.ExportTraceServiceResponse()


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    made = Collector()
    yield made
    made.server.stop(0).wait()


def request(most: int, name: str = "r") -> inference_pb2.GenerateRequest:
    options = SamplingParams(max_tokens=most, ignore_eos=True).as_proto()
    return inference_pb2.GenerateRequest(prompt=inference_pb2.Prompt(text="a secret"), options=options, request_id=name)


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


async def test_a_request_is_a_span_in_the_trace_of_its_client(
    model: ServedModel, tmp_path: Path, collector: Collector
) -> None:
    async with paper_service(model, tmp_path, PaperWorker(), "--traces", collector.url) as service:
        service.is_open.set()
        metadata = (("traceparent", f"00-{TRACE_ID}-{PARENT_ID}-01"),)
        await service.stub.Generate(request(5), metadata=metadata)
        await service.stub.Generate(request(3, "other"))
    mine, other = collector.spans
    assert (mine.trace_id.hex(), mine.parent_span_id.hex()) == (TRACE_ID, PARENT_ID)
    assert (other.trace_id != mine.trace_id, other.parent_span_id) == (True, b"")
    said = attributes(mine)
    assert (said["octavo.request_id"], said["octavo.answer_tokens"], said["octavo.finish"]) == ("r", 5, "length")
    assert [event.name for event in mine.events] == ["prefill", "decode"]
    times = [mine.start_time_unix_nano, *(event.time_unix_nano for event in mine.events), mine.end_time_unix_nano]
    assert times == sorted(times)
    assert b"secret" not in mine.SerializeToString()


async def test_a_request_that_was_cancelled_or_refused_says_so(
    model: ServedModel, tmp_path: Path, collector: Collector
) -> None:
    async with paper_service(model, tmp_path, PaperWorker(pages=4), "--traces", collector.url) as service:
        call = service.stub.Generate(request(5))
        await until(lambda: len(service.scheduler.loop.core.requests) == 1)
        call.cancel()
        await until(lambda: not service.scheduler.loop.core.requests)
        with pytest.raises(grpc.aio.AioRpcError):
            await service.stub.Generate(request(1000, "long"))
    cancelled, refused = collector.spans
    assert attributes(cancelled)["octavo.cancelled"]
    assert cancelled.status.code == 0, "that a client leaves is no error of ours"
    assert refused.status.message == "InvalidRequest"


def test_the_collector_has_an_address_that_says_how_to_talk_to_it() -> None:
    with pytest.raises(StartError, match="--traces localhost:4317 is neither http://HOST:PORT nor https://HOST:PORT"):
        read_config(["--model", "m", "--traces", "localhost:4317"])
