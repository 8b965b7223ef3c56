"""A server that speaks octavo.v1 and gRPC health without a model. Used in-process, or run as if it were the scheduler.

It answers a prompt with its own words, one token each, in capitals: "a b" gives "A B ". Token ids are the lengths of the
words. Of several answers number k leaves the first k words out; they come in turns. These prompts do something else:

    fail CODE words      ends with that gRPC status and the words as its message
    hang                 says "HANG ", then nothing more until the call is cancelled
    lose CODE K words    ends with that status after every K words of an answer; the rest comes when it is resumed
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from octavo.v1 import admin_pb2, admin_pb2_grpc, inference_pb2_grpc
from octavo.v1 import inference_pb2 as pb

SERVICE = "octavo.v1.InferenceService"
SEED = 7


class InferenceServer(inference_pb2_grpc.InferenceServiceServicer, admin_pb2_grpc.AdminServiceServicer):
    """The double. After start(), `address` is where it listens; the other attributes record what it saw."""

    def __init__(self, *, token: str | None = None, status: admin_pb2.GetStatusResponse | None = None) -> None:
        self.address = ""
        self.requests: list[Any] = []
        self.cancelled: asyncio.Queue[str] = asyncio.Queue()
        self.live = 0
        self.peak_live = 0
        self.health = health.aio.HealthServicer()
        self._token = token
        self._status = status or default_status()
        self._server = grpc.aio.server()

    async def start(
        self, listen: str = "127.0.0.1:0", *, serving: bool = True, tls: grpc.ServerCredentials | None = None
    ) -> None:
        """Listens. `serving` is what health says."""
        inference_pb2_grpc.add_InferenceServiceServicer_to_server(self, self._server)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(self, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self._server)
        states = health_pb2.HealthCheckResponse
        await self.health.set(SERVICE, states.SERVING if serving else states.NOT_SERVING)
        add = self._server.add_insecure_port
        port = add(listen) if tls is None else self._server.add_secure_port(listen, tls)
        self.address = listen if listen.startswith("unix:") else f"127.0.0.1:{port}"
        await self._server.start()

    async def stop(self) -> None:
        """Ends all calls."""
        await self._server.stop(None)

    async def Generate(self, request: Any, context: Any) -> pb.GenerateResponse:
        return pb.GenerateResponse(**await self._whole(request, prompt_text(request.prompt), context))

    async def Chat(self, request: Any, context: Any) -> pb.ChatResponse:
        return pb.ChatResponse(**await self._whole(request, request.messages[-1].content, context))

    async def GenerateStream(self, request: Any, context: Any) -> AsyncIterator[pb.GenerateStreamResponse]:
        async for event in self._events(request, prompt_text(request.prompt), context):
            yield pb.GenerateStreamResponse(request_id=request.request_id, **event)

    async def ChatStream(self, request: Any, context: Any) -> AsyncIterator[pb.ChatStreamResponse]:
        async for event in self._events(request, request.messages[-1].content, context):
            yield pb.ChatStreamResponse(request_id=request.request_id, **event)

    async def ListModels(self, _request: Any, context: Any) -> pb.ListModelsResponse:
        await self._check_token(context)
        return pb.ListModelsResponse(models=[pb.Model(name="double", max_context=100, vocab_size=50)])

    async def GetStatus(self, _request: Any, context: Any) -> admin_pb2.GetStatusResponse:
        await self._check_token(context)
        return self._status

    async def _whole(self, request: Any, text: str, context: Any) -> dict[str, Any]:
        completions = [pb.Completion(branch=branch, finish=finish()) for branch in range(num_answers(request))]
        async for event in self._events(request, text, context):
            if "delta" in event:
                completion = completions[event["delta"].branch]
                completion.text += event["delta"].text
                completion.token_ids.extend(event["delta"].token_ids)
        return {
            "request_id": request.request_id,
            "completions": completions,
            "usage": usage(text, len(completions)),
            "timings": timings(),
        }

    async def _events(self, request: Any, text: str, context: Any) -> AsyncIterator[dict[str, Any]]:
        await self._check_token(context)
        self.requests.append(request)
        if text.startswith("fail "):
            _, code, sentence = text.split(" ", 2)
            busy = (("retry-after-ms", "20"), ("grpc-retry-pushback-ms", "20"))
            await context.abort(grpc.StatusCode[code], sentence, busy if code == "RESOURCE_EXHAUSTED" else ())
        scheduling = request.options.scheduling
        lost_after = int(text.split()[2]) if text.startswith("lose ") else 0
        self.live += 1
        self.peak_live = max(self.peak_live, self.live)
        try:
            yield {"start": start(text)}
            answers = [text.split()[branch:] for branch in range(num_answers(request))]
            held = [len(tokens.ids) for tokens in (scheduling.resume_from, *scheduling.resume_from_others)]
            places = held + [0] * (len(answers) - len(held))
            for index in range(min(places), len(answers[0])):
                await asyncio.sleep(0)  # lets other calls run
                for branch, words in enumerate(answers):
                    if places[branch] <= index < len(words):
                        yield {"delta": word_delta(branch, index, words[index])}
                if index == places[0] + lost_after - 1:
                    await context.abort(grpc.StatusCode[text.split()[1]], "The connection is lost.")
            if text == "hang":
                await asyncio.Event().wait()
            ends = [pb.BranchEnd(branch=branch, finish=finish()) for branch in range(len(answers))]
            yield {"end": pb.StreamEnd(branches=ends, usage=usage(text, len(answers)), timings=timings())}
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled.put_nowait(request.request_id)
            raise
        finally:
            self.live -= 1

    async def _check_token(self, context: Any) -> None:
        sent = dict(context.invocation_metadata()).get("authorization")
        if self._token is not None and sent != f"Bearer {self._token}":
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "This server asks for a token.")


def prompt_text(prompt: pb.Prompt) -> str:
    return prompt.text or " ".join("x" * token for token in prompt.token_ids.ids)


def start(text: str) -> pb.StreamStart:
    return pb.StreamStart(prompt_tokens=len(text.split()), cached_tokens=1, queue_seconds=0.5, seed=SEED)


def finish() -> pb.Finish:
    return pb.Finish(reason=pb.FINISH_REASON_STOP, token_id=2)


def num_answers(request: Any) -> int:
    return max(int(request.options.sampling.n), 1)


def word_delta(branch: int, index: int, word: str) -> pb.Delta:
    return pb.Delta(branch=branch, text=f"{word.upper()} ", token_ids=[len(word)], first_index=index)


def usage(text: str, answers: int) -> pb.Usage:
    num_words = len(text.split())
    answered = sum(max(num_words - branch, 0) for branch in range(answers))
    return pb.Usage(prompt_tokens=num_words, completion_tokens=answered, cached_tokens=1)


def timings() -> pb.Timings:
    return pb.Timings(queue_seconds=0.5, first_token_seconds=1.0, total_seconds=2.0, preemptions=1)


def default_status() -> admin_pb2.GetStatusResponse:
    worker = admin_pb2.WorkerStatus(
        worker_id="worker-0",
        state=admin_pb2.WORKER_STATE_READY,
        page_size=16,
        device=admin_pb2.PageCounts(total=100, free=90, held=10, peak_held=40),
        kernels="double",
        slot_utilisation=0.97,
    )
    return admin_pb2.GetStatusResponse(model="double", uptime_seconds=1, workers=[worker])


async def serve_like_a_scheduler(args: argparse.Namespace) -> None:
    """Prints a scheduler's ready line and serves until the lifeline ends."""
    server = InferenceServer()
    await server.start(args.listen, serving=not args.not_serving)
    print(f"octavo scheduler: serving double on {server.address}, workers dial {args.workers}", flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(args.lifeline, ended.set)
    await ended.wait()
    await server.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", required=True)
    parser.add_argument("--workers", required=True)
    parser.add_argument("--lifeline", type=int, required=True)
    parser.add_argument("--not-serving", action="store_true")
    known, _ = parser.parse_known_args(sys.argv[1:])
    asyncio.run(serve_like_a_scheduler(known))
