"""The offline API: a model in a few lines, without a server to care for."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias, Unpack, cast

from rich.console import Console
from rich.progress import Progress

from octavo_client.client import AsyncClient
from octavo_client.dialect import AnySettings, translate
from octavo_client.engine import flags_of, is_engine, prepare
from octavo_client.errors import ConfigError, InvalidRequest
from octavo_client.local import LocalServer, Programs
from octavo_client.params import SamplingParams
from octavo_client.prompts import Message, Prompt, as_list
from octavo_client.results import RequestOutput
from octavo_client.settings import scheduler_flags, worker_flags
from octavo_client.stats import Engine
from octavo_client.sync import run

MOST_CALLS_AT_ONCE = 256

Call: TypeAlias = Callable[[], Coroutine[Any, Any, RequestOutput]]


class LLM:
    """Serves one model with a scheduler and workers of its own, which end with this process.

    model: folder or GGUF file. seed: makes requests without a seed of their own repeatable. verbose: shows what the
    processes print. The other settings are those of `settings.Settings`, and those that other engines call otherwise
    (`dialect.OthersSettings`). Raises StartFailed when the model cannot be served.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        num_workers: int = 1,
        seed: int | None = None,
        verbose: bool = False,
        programs: Programs | None = None,
        **settings: Unpack[AnySettings],
    ) -> None:
        self._model, self._settings = Path(model), translate(model, settings)
        self._seeds = None if seed is None else itertools.count(seed)
        self._server = local_server(model, self._settings, num_workers=num_workers, verbose=verbose, programs=programs)
        self._server.start()
        self._client = run(_connect(self._server.address))
        self.llm_engine = Engine(self._client)

    @classmethod
    def load(cls, path: str | Path, **settings: Any) -> Self:
        """Serves an engine folder that save_engine() or `octavo prepare` wrote. The settings are those of LLM().

        Raises ConfigError for a path that is none.
        """
        if not is_engine(Path(path)):
            raise ConfigError(f"{path} is no engine folder; LLM({str(path)!r}) serves other models.")
        return cls(path, **settings)

    def save_engine(self, path: str | Path) -> None:
        """Writes this model as an engine folder, in the precision of this LLM, from which LLM.load() starts at once.

        Raises PrepareFailed, and leaves nothing behind then.
        """
        wanted = {name: self._settings.get(name) for name in ("weights", "dtype", "kernels", "threads")}
        prepare(self._model, Path(path), flags_of(wanted))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def generate(
        self,
        prompts: Prompt | Iterable[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = False,
    ) -> list[RequestOutput]:
        """Continues one prompt or many, all of them side by side; the results are in the order of the prompts.

        A prompt is text, a list of token ids, {"prompt": text} or {"prompt_token_ids": ids}. `sampling_params` is one for
        all or one for each; without it SamplingParams() holds. `use_tqdm`: show a bar. The first error cancels the other
        requests and is raised.
        """
        many = as_list(prompts)
        pairs = zip(many, self._params_for_each(len(many), sampling_params), strict=True)
        return run(_all([partial(self._client.generate, prompt, each) for prompt, each in pairs], use_tqdm))

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = False,
    ) -> list[RequestOutput]:
        """Answers one conversation or many, through the model's chat template; else like generate()."""
        many = _conversations(messages)
        pairs = zip(many, self._params_for_each(len(many), sampling_params), strict=True)
        return run(_all([partial(self._client.chat, conversation, each) for conversation, each in pairs], use_tqdm))

    def shutdown(self) -> None:
        """Ends the workers and the scheduler. May be called twice."""
        run(self._client.close())
        self._server.close()

    def _params_for_each(
        self, count: int, params: SamplingParams | Sequence[SamplingParams] | None
    ) -> list[SamplingParams]:
        if params is None or isinstance(params, SamplingParams):
            params = [params or SamplingParams()] * count
        if len(params) != count:
            raise InvalidRequest(f"There are {count} prompts but {len(params)} sampling parameters.")
        if self._seeds is None:
            return list(params)
        return [each if each.seed is not None else replace(each, seed=next(self._seeds)) for each in params]


def local_server(
    model: str | Path,
    settings: Mapping[str, Any],
    *,
    num_workers: int = 1,
    verbose: bool = False,
    programs: Programs | None = None,
) -> LocalServer:
    """One that is not started yet. `settings` are our own; `num_workers` among them stands before the argument."""
    rest = dict(settings)
    return LocalServer(
        model,
        workers=rest.pop("num_workers", num_workers),
        scheduler_flags=scheduler_flags(rest),
        worker_flags=worker_flags(rest),
        verbose=verbose,
        programs=programs,
    )


async def _connect(address: str) -> AsyncClient:
    return AsyncClient(address)


async def _all(calls: Sequence[Call], shows_bar: bool = False) -> list[RequestOutput]:
    room = asyncio.Semaphore(MOST_CALLS_AT_ONCE)
    with Progress(console=Console(stderr=True), disable=not shows_bar) as progress:
        bar = progress.add_task("Answers", total=len(calls))

        async def one(call: Call) -> RequestOutput:
            async with room:
                output = await call()
            progress.advance(bar)
            return output

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(call)) for call in calls]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def _conversations(messages: Sequence[Message] | Sequence[Sequence[Message]]) -> list[Sequence[Message]]:
    if all(isinstance(entry, Mapping) for entry in messages):
        return [cast(Sequence[Message], messages)]
    return list(cast(Sequence[Sequence[Message]], messages))
