"""A rank's life: check the model, take a seat, load its part, then serve a scheduler or follow rank 0."""

import os
import signal
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from octavo_worker.config import WorkerConfig
from octavo_worker.errors import ConfigError, GroupLost, WorkerError
from octavo_worker.group.seat import LOST, Children, Seat, end_at_once, end_with, per_rank, take_seat
from octavo_worker.group.shard import Shard
from octavo_worker.manifest import is_engine
from octavo_worker.precision import choose, pick_kernels
from octavo_worker.source import open_source

OnSignal = Callable[[Callable[[], object]], None]
SECONDS_TO_NOTICE = 1.0


def serve_as_group(config: WorkerConfig, arguments: Sequence[str], on_signal: OnSignal) -> None:
    """Be one rank until told to end. `arguments`: what `config` was read from, for the other ranks if they must be started;
    `on_signal(act)` says what SIGTERM does from now on. Raises WorkerError before there are others; after that, whatever
    goes wrong ends this process."""
    config = settled(config)
    seat, children = take_seat(os.environ, config.tensor_parallel_size, [*arguments, f"--kernels={config.kernels}"])
    config = per_rank(config, seat.rank)
    watchers = children.watchers if children is not None else []
    try:
        if seat.is_first:
            lead(config, seat, children, on_signal)
        else:
            watchers = end_with(config.lifeline)
            follow(config, seat)
    except BaseException as error:
        if isinstance(error, GroupLost) and watchers:
            watchers[0].join(SECONDS_TO_NOTICE)  # who is gone is noticed now or soon, and more is said than torch knows
        end_at_once(*last_words(error))


def last_words(error: BaseException) -> tuple[str, int]:
    """What this process says at its end, and its exit code."""
    if isinstance(error, SystemExit):
        return "", int(error.code or 0)
    if isinstance(error, WorkerError):
        return f"octavo worker: {error}", error.exit_code
    return "".join(traceback.format_exception(error)).rstrip(), LOST


def settled(config: WorkerConfig) -> WorkerConfig:
    """The configuration with the kernels that all ranks use. Raises WorkerError, before any rank is started, for what none
    could serve."""
    if is_engine(config.model):
        raise ConfigError(
            f"{config.model} is an engine folder, whose matrices are packed whole; with --tensor-parallel-size serve the "
            "model that it was made from"
        )
    rank = os.environ.get("RANK", "0")
    ops = pick_kernels(
        per_rank(config, int(rank) if rank.isdigit() else 0)
    )  # on a GPU of its own from the first moment
    Shard(0, config.tensor_parallel_size).of(open_source(config.model).architecture, choose(config, ops).weights)
    kernels, _, _ = ops.name.partition("+")  # ops of somebody's own come on top in each rank
    return replace(config, kernels=kernels)


def lead(config: WorkerConfig, seat: Seat, children: Children | None, on_signal: OnSignal) -> None:
    """Rank 0: serve until told to end, then tell the others."""
    from octavo_worker.group.lead import END, Lead
    from octavo_worker.group.ranks import Ranks
    from octavo_worker.link import Link
    from octavo_worker.loading import behind_a_bar
    from octavo_worker.runner import build_runner
    from octavo_worker.warming import warm_up

    ranks = Ranks(seat, config.device)
    make = partial(Lead, ranks)
    runner = behind_a_bar(f"loading {config.model.name}", lambda show: build_runner(config, show, ranks, make))
    warm_up(runner)
    link = Link(config, runner)
    on_signal(link.stop)
    link.run()
    if children is not None:
        children.is_ending = True
    with suppress(GroupLost):  # where all ranks were told to end at once, one may have ended before
        ranks.tell(END)
    ranks.leave()
    if children is not None:
        children.wait()


def follow(config: WorkerConfig, seat: Seat) -> None:
    """Any other rank. A signal ends it at once, and the group with it; unless it is torchrun's, which tells all ranks: then
    rank 0 finishes what it began and ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if seat.is_served else signal.SIG_DFL)
    from octavo_worker.group.lead import Follower
    from octavo_worker.group.ranks import Ranks
    from octavo_worker.runner import build_runner

    ranks = Ranks(seat, config.device)
    Follower(ranks, build_runner(config, group=ranks)).follow()
    ranks.leave()
