"""Why a request waits, was preempted, or what it is doing: one sentence with numbers. Asks only.

What stands between a sequence and a worker is looked up in `outlook`.
"""

from collections.abc import Iterator

from octavo_scheduler.core.core import Core
from octavo_scheduler.core.outlook import Outlook
from octavo_scheduler.core.request import Request, Sequence
from octavo_scheduler.core.states import RequestState, SequenceState
from octavo_scheduler.core.words import many
from octavo_scheduler.core.worker import Worker


def explain(core: Core, request_id: str, now: float) -> str:
    """A sentence about a request; a line for each live branch where there are several."""
    request = core.requests.get(request_id)
    if request is None:
        return "no such request is alive: it has ended, or never came"
    return "\n".join(_lines(core, request, now))


def _lines(core: Core, request: Request, now: float) -> Iterator[str]:
    for sequence in request.sequences:
        if sequence.state is not SequenceState.DONE:
            name = f"branch {sequence.branch} " if request.spec.n > 1 else ""
            yield name + _sentence(core, sequence, now) + _past(core, sequence) + _until(request, now)
    if unborn := request.num_unborn:
        yield f"{many(unborn, 'branch', 'branches')} more will fork off with the first token"


def _sentence(core: Core, sequence: Sequence, now: float) -> str:
    if sequence.worker is not None and sequence.state is SequenceState.RUNNING:
        return f"runs on {sequence.worker.id}: {_progress(sequence.worker, sequence)}"
    if sequence.worker is not None:
        pages = many(len(sequence.host_table), "host page")
        outlook = Outlook(core, sequence.worker, now).of(sequence)
        return f"is swapped out on {sequence.worker.id} ({pages}, {_answer(sequence)}): {outlook}"
    head = f"has waited for {now - sequence.request.arrived_at:.1f} s"
    if sequence.request.state is RequestState.ACTIVE:
        head = (
            f"waits to be computed again ({_answer(sequence)}, arrived {now - sequence.request.arrived_at:.1f} s ago)"
        )
    if not core.workers:
        return f"{head}: no worker is here"
    return f"{head}: " + "; ".join(
        Outlook(core, worker, now).of(sequence) for _, worker in sorted(core.workers.items())
    )


def _progress(worker: Worker, sequence: Sequence) -> str:
    """What a running sequence is doing."""
    if sequence.is_evicting:
        return (
            f"gives way: it gets no row until its {many(sequence.rows_in_flight, 'row')} in flight are done, so that "
            f"a request before it can have some of its {many(len(sequence.table), 'page')}"
        )
    doing = _answer(sequence)
    if sequence.computed < len(sequence.tokens) - 1:
        kind = "tokens computed again" if sequence.num_generated else "prompt tokens computed"
        doing = f"{sequence.computed} of {len(sequence.tokens)} {kind}"
    lacking = worker.num_pages(sequence.planned + 1) - len(sequence.table)
    is_last = sequence is worker.running[-1]
    if sequence.uncomputed and not sequence.rows_in_flight and is_last and lacking > worker.device.num_available:
        doing += f", and stands still with {many(len(sequence.table), 'page')}: it needs one more and is last in order"
    if sequence.faults:
        doing += (
            f"; it met {many(sequence.faults, 'failed step')} of {worker.settings.max_faults} and gets plans of its own"
        )
    return doing


def _answer(sequence: Sequence) -> str:
    most = "" if sequence.max_tokens is None else f" of {sequence.max_tokens}"
    return f"{sequence.num_generated}{most} tokens answered"


def _until(request: Request, now: float) -> str:
    """How long it will wait at most, where that is limited."""
    until = request.spec.queue_deadline
    if until is None or request.state is not RequestState.QUEUED:
        return ""
    return f"; ends in {max(until - now, 0):.1f} s if it has not started by then"


def _past(core: Core, sequence: Sequence) -> str:
    past = ""
    if sequence.overtaken:
        past += f"; passed over {sequence.overtaken} of {core.settings.max_overtakes} times"
    if sequence.request.preemptions:
        past += f"; preempted {many(sequence.request.preemptions, 'time')} so far"
    return past
