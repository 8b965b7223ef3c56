"""One OpenTelemetry span for each request, sent to a collector that the operator names (`--traces`, extra `otel`).

A client that sends a `traceparent` in its metadata finds the request in its own trace. Nothing of what was asked or answered
is in a span, only lengths and times.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from opentelemetry import context, propagate
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Span, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode

from octavo_scheduler.answer import Begin, End
from octavo_scheduler.requests import Parsed

NANOSECONDS = 1_000_000_000


class Traces:
    """Spans of one scheduler. `close` sends those that are left."""

    def __init__(self, exporter: SpanExporter, model: str) -> None:
        resource = Resource.create({"service.name": "octavo", "octavo.model": model})
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("octavo")

    @classmethod
    def to(cls, address: str, model: str) -> "Traces":
        """Spans go to a collector that takes OTLP over gRPC, `http://HOST:PORT`, or `https://` with the system's trust."""
        return cls(OTLPSpanExporter(endpoint=address, insecure=address.startswith("http://")), model)

    @contextmanager
    def request(self, parsed: Parsed) -> Iterator[Callable[[Begin | End], None]]:
        """For as long as a request is answered; call what is yielded with its first event and its last."""
        span = self._tracer.start_span("request", kind=SpanKind.SERVER)
        assert isinstance(span, Span), "it comes from a provider of the SDK"
        span.set_attribute("octavo.request_id", parsed.label)
        try:
            yield lambda event: _note(span, event)
        except BaseException as error:  # also of a reader that has left, which is no error of ours
            if isinstance(error, Exception):
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            else:
                span.set_attribute("octavo.cancelled", True)
            raise
        finally:
            span.end()

    def close(self) -> None:
        self._provider.shutdown()


class TraceInterceptor(grpc.aio.ServerInterceptor):
    """Makes the trace of the client that of the task which serves its call."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any] | None"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        metadata: Any = handler_call_details.invocation_metadata or ()
        carrier = {key: value for key, value in metadata if isinstance(value, str)}
        context.attach(propagate.extract(carrier))
        return await continuation(handler_call_details)


def _note(span: Span, event: Begin | End) -> None:
    if isinstance(event, Begin):
        span.set_attribute("octavo.prompt_tokens", event.prompt_tokens)
        span.set_attribute("octavo.cached_tokens", event.cached_tokens)
        return
    arrived = span.start_time or 0
    for name, seconds in (("prefill", event.queued), ("decode", event.first_token_seconds)):
        span.add_event(name, timestamp=arrived + int(seconds * NANOSECONDS))
    span.set_attribute("octavo.queue_seconds", event.queued)
    span.set_attribute("octavo.answer_tokens", event.completion_tokens)
    span.set_attribute("octavo.preemptions", event.preemptions)
    span.set_attribute("octavo.finish", event.branches[0].reason.name.lower())
