"""What the prefix caches hold, told to gateways that send requests to where their beginnings are.

A subscriber is told the difference between what it knows and what is there, as often as it takes a message. So nothing is
queued for a slow one, a worker that is lost needs no word of its own, and the core does nothing while nobody listens. A page
counts once, whichever workers and tiers hold it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from octavo.foreign import vllm_engine_pb2 as pb

from octavo_scheduler.core import Core
from octavo_scheduler.core.pages import Content
from octavo_scheduler.core.prefix import root_key
from octavo_scheduler.core.worker import Worker

T = TypeVar("T")
Pages = Mapping[bytes, Content]

SALT = ""
"""Of requests that name neither tenant nor salt; a gateway can send no others."""
MOST_BLOCKS = 512
"""Of a batch."""


def cached_pages(core: Core) -> dict[bytes, Content]:
    """All pages that a prompt could be led to, by key; each after the one before it."""
    return {key: page for worker in core.workers.values() for key, page in _cached_pages(worker).items()}


def _cached_pages(worker: Worker) -> dict[bytes, Content]:
    children: dict[bytes, list[Content]] = {}
    for pool in (worker.device, worker.host):
        for page in pool.contents:
            children.setdefault(page.parent, []).append(page)
    found: dict[bytes, Content] = {}
    parents = [root_key(SALT, worker.joined.weights_digest)]
    while parents:
        for page in children.get(parents.pop(), ()):
            if page.key not in found:
                found[page.key] = page
                parents.append(page.key)
    return found


def snapshot(pages: Pages) -> Iterator[pb.KvEventBatch]:
    """The present state, for whoever knows nothing."""
    parts = list(_parts(list(pages.values()))) or [[]]
    for index, part in enumerate(parts):
        events = [pb.KvCacheEvent(cleared=pb.KvCacheCleared())] if index == 0 else []
        chunk = pb.KvSnapshotChunk(index=index, count=len(parts), blocks=len(pages))
        yield pb.KvEventBatch(events=[*events, *_stored(part, pages)], snapshot=chunk)


def changes(known: Pages, pages: Pages) -> Iterator[pb.KvEventBatch]:
    """What makes `pages` of what a subscriber knows."""
    gone = [key for key in known if key not in pages]
    if gone and not pages:
        yield pb.KvEventBatch(events=[pb.KvCacheEvent(cleared=pb.KvCacheCleared())])
        return
    for keys in _parts(gone):
        removed = pb.KvBlocksRemoved(block_hashes=[_name(key) for key in keys])
        yield pb.KvEventBatch(events=[pb.KvCacheEvent(removed=removed)])
    for part in _parts([page for key, page in pages.items() if key not in known]):
        yield pb.KvEventBatch(events=_stored(part, pages))


def _stored(pages: Sequence[Content], all_pages: Pages) -> list[pb.KvCacheEvent]:
    """One event for each run of pages that follow one another."""
    events: list[pb.KvCacheEvent] = []
    last = b""
    for page in pages:
        if page.parent != last or not events:
            parent = _name(page.parent) if page.parent in all_pages else None
            events.append(pb.KvCacheEvent(stored=pb.KvBlocksStored(parent_block_hash=parent)))
        block = pb.KvBlock(block_hash=_name(page.key), token_ids=page.tokens, block_size=len(page.tokens))
        events[-1].stored.blocks.append(block)
        last = page.key
    return events


def _name(key: bytes) -> int:
    """The field has room for eight bytes of a key."""
    return int.from_bytes(key[:8], "little", signed=True)


def _parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[first : first + MOST_BLOCKS] for first in range(0, len(items), MOST_BLOCKS))
