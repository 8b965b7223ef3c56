"""Requests that no server should serve: bytes that are no message, numbers out of range, prompts of nothing."""

from math import nan
from typing import Any

import grpc
from octavo.v1 import inference_pb2 as pb

GENERATE = "/octavo.v1.InferenceService/Generate"
CHAT = "/octavo.v1.InferenceService/Chat"
PROMPT = pb.Prompt(token_ids=pb.TokenIds(ids=[5, 6, 7]))


def _with(**options: Any) -> bytes:
    return pb.GenerateRequest(prompt=PROMPT, options=pb.GenerationOptions(**options)).SerializeToString()


CASES: tuple[tuple[str, bytes], ...] = (
    (GENERATE, b"\xff\xff\xff\xff"),
    (GENERATE, b""),
    (GENERATE, pb.GenerateRequest(prompt=pb.Prompt(token_ids=pb.TokenIds())).SerializeToString()),
    (GENERATE, pb.GenerateRequest(prompt=pb.Prompt(token_ids=pb.TokenIds(ids=[1 << 31]))).SerializeToString()),
    (GENERATE, pb.GenerateRequest(prompt=pb.Prompt(token_ids=pb.TokenIds(ids=[5] * 9000))).SerializeToString()),
    (GENERATE, pb.GenerateRequest(prompt=PROMPT, model="no such model").SerializeToString()),
    (GENERATE, pb.GenerateRequest(prompt=PROMPT, request_id="x" * 1000).SerializeToString()),
    (GENERATE, _with(sampling=pb.SamplingOptions(temperature=nan))),
    (GENERATE, _with(sampling=pb.SamplingOptions(n=1000))),
    (GENERATE, _with(sampling=pb.SamplingOptions(top_p=2.0))),
    (GENERATE, _with(stopping=pb.StoppingOptions(stop=["x" * 1000]))),
    (GENERATE, _with(stopping=pb.StoppingOptions(max_tokens=1 << 30))),
    (GENERATE, _with(scheduling=pb.SchedulingOptions(tenant="a\nb"))),
    (CHAT, b""),
    (CHAT, pb.ChatRequest(messages=[pb.ChatMessage(role="", content="x")]).SerializeToString()),
    ("/octavo.v1.InferenceService/NoSuchMethod", b""),
)


async def malformed(channel: grpc.aio.Channel, number: int) -> grpc.StatusCode:
    """How a call with one of these ends."""
    method, message = CASES[number % len(CASES)]
    ask: Any = channel.unary_unary(method)
    code: grpc.StatusCode = await ask(message).code()
    return code
