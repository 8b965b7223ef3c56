"""Whether anybody could ever hold a request."""

from collections.abc import Iterable

from octavo_scheduler.core.events import Refused
from octavo_scheduler.core.request import RequestSpec
from octavo_scheduler.core.states import WorkerState
from octavo_scheduler.core.worker import Worker


def unholdable(present: Iterable[Worker], spec: RequestSpec) -> Refused | None:
    """The refusal of a request that none of the present workers could ever hold."""
    workers = [worker for worker in present if worker.state is not WorkerState.GONE]
    new_tokens = spec.max_tokens or max(map(len, spec.held), default=0) + 1
    longest = len(spec.prompt) + new_tokens
    able = [worker for worker in workers if worker.knows_options or not spec.needs_options]
    if not workers or any(longest <= worker.capacity for worker in able):
        return None
    if not able:
        return Refused(spec.id, "NO_WORKER", "the workers are of a version that does not know what this asks for")
    best = max(able, key=lambda worker: worker.capacity)
    share = (
        "" if best.tenant_pages == best.device.num_usable else f", of which one tenant may have {best.tenant_pages},"
    )
    message = (
        f"{len(spec.prompt)} prompt tokens and {new_tokens} new tokens need "
        f"{best.num_pages(longest - 1)} pages of {best.page_size} tokens; "
        f"the largest pool has {best.device.num_usable}{share} and the model's context is {best.joined.max_context} tokens"
    )
    return Refused(spec.id, "TOO_LONG", message)
