"""A model for programs with an event loop of their own, under the names that users of other engines know."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Self, Unpack

from octavo_client.client import AsyncClient
from octavo_client.dialect import AnySettings, translate
from octavo_client.gather import Gathered
from octavo_client.llm import local_server
from octavo_client.local import LocalServer, Programs
from octavo_client.params import SamplingParams
from octavo_client.prompts import Prompt
from octavo_client.results import RequestOutput, Start


class EngineArgs:
    """What an engine is made of: the arguments of `LLM`, without a seed."""

    def __init__(
        self,
        model: str | Path,
        *,
        num_workers: int = 1,
        verbose: bool = False,
        programs: Programs | None = None,
        **settings: Unpack[AnySettings],
    ) -> None:
        self.model = model
        self.num_workers, self.verbose, self.programs = num_workers, verbose, programs
        self.settings = translate(model, settings)


AsyncEngineArgs = EngineArgs


class AsyncLLMEngine:
    """Serves one model with processes of its own. Make it with from_engine_args(); calls belong to one event loop."""

    def __init__(self, server: LocalServer) -> None:
        """`server` has been started, and ends with this engine."""
        self._server = server
        self._client: AsyncClient | None = None

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs) -> Self:
        """Returns when the model is being served. Raises StartFailed when it cannot be."""
        args = engine_args
        server = local_server(
            args.model, args.settings, num_workers=args.num_workers, verbose=args.verbose, programs=args.programs
        )
        server.start()
        return cls(server)

    async def generate(
        self, prompt: Prompt, sampling_params: SamplingParams | None, request_id: str
    ) -> AsyncGenerator[RequestOutput]:
        """Yields all of the answer so far, each time that there is more of it; the last is `finished`.

        Leaving the loop, cancelling its task and abort() end the request at the server. Another request under an id that is
        in use, or was a moment ago, is refused.
        """
        params = sampling_params or SamplingParams()
        so_far = Gathered(prompt, params.n)
        events = self._connected().stream(prompt, params, request_id=request_id)
        async with aclosing(events):
            async for event in events:
                so_far.add(event)
                if not isinstance(event, Start):
                    yield so_far.output()

    async def abort(self, request_id: str) -> None:
        """Ends a request; its answer is finished as it is, for the reason "abort". Does nothing to one that has ended."""
        await self._connected().abort(request_id)

    async def check_health(self) -> None:
        """Raises an error of octavo_client.errors when the scheduler does not answer."""
        await self._connected().list_models(timeout=10.0)

    def shutdown(self) -> None:
        """Ends the workers and the scheduler. May be called twice."""
        self._server.close()

    def _connected(self) -> AsyncClient:
        if self._client is None:
            self._client = AsyncClient(self._server.address)
        return self._client
