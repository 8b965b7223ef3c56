"""What clients are told about the model: itself, what may be asked of it, and how the workers that are here compute it."""

from collections import Counter

from octavo.v1 import inference_pb2 as pb

from octavo_scheduler import limits
from octavo_scheduler.core import Core
from octavo_scheduler.model import ServedModel


def model(served: ServedModel) -> pb.Model:
    """What is known without a worker."""
    return pb.Model(
        name=served.name,
        max_context=served.max_context,
        vocab_size=served.vocab_size,
        end_token_ids=sorted(served.end_token_ids),
        has_chat_template=served.template is not None,
    )


def described(served: ServedModel, core: Core) -> pb.GetModelResponse:
    """All of it. Runs in the loop's thread."""
    joined = [worker.joined for worker in core.workers.values()]
    alike = Counter((each.kernels, each.kv_dtype, each.page_size) for each in joined)
    return pb.GetModelResponse(
        model=model(served),
        defaults=_defaults(served),
        limits=_limits(),
        weights_digest=joined[0].weights_digest.hex() if joined else "",
        engines=[
            pb.Engine(kernels=kernels, kv_dtype=dtype, page_size=page_size, num_workers=count)
            for (kernels, dtype, page_size), count in sorted(alike.items())
        ],
    )


def _defaults(served: ServedModel) -> pb.SamplingOptions:
    defaults = pb.SamplingOptions()
    for name, value in served.defaults.items():
        setattr(defaults, name, int(value) if name == "top_k" else value)
    return defaults


def _limits() -> pb.Limits:
    return pb.Limits(
        answers=limits.MAX_ANSWERS,
        stops=limits.MAX_STOPS,
        stop_bytes=limits.MAX_STOP_BYTES,
        stop_token_ids=limits.MAX_STOP_TOKEN_IDS,
        messages=limits.MAX_MESSAGES,
        prompt_bytes=limits.MAX_PROMPT_BYTES,
        stream_interval=limits.MAX_STREAM_INTERVAL,
        seconds=limits.MAX_REQUEST_SECONDS,
    )
