"""Finding pages that already hold a prefix.

A full page is known by SHA-256 over its parent's key and its token ids; the first parent is SHA-256 over what must never be
mixed: salt, weights, adapter. On a hit the token ids are compared too, so that a collision costs speed, never correctness.
"""

from array import array
from collections.abc import Sequence as Tokens
from hashlib import sha256
from typing import NamedTuple

from octavo_scheduler.core.pages import Content, PagePool
from octavo_scheduler.core.request import Sequence
from octavo_scheduler.core.worker import Worker

ADAPTER = b""
"""There are no adapters yet; the place in the key is theirs."""


class Hit(NamedTuple):
    """A page that holds the next tokens of a prefix."""

    pool: PagePool
    page: int
    content: Content


def root_key(salt: str, weights_digest: bytes) -> bytes:
    """The parent of every first page. Each part is preceded by its length, so that no two lists of parts look alike."""
    digest = sha256()
    for part in (salt.encode(), weights_digest, ADAPTER):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def child_key(parent: bytes, tokens: Tokens[int]) -> bytes:
    return sha256(parent + array("i", tokens).tobytes()).digest()


def page_content(worker: Worker, sequence: Sequence, number: int) -> Content:
    """Of the sequence's page `number`, all of whose tokens are known. Keys are remembered, since tokens never change."""
    size, keys = worker.page_size, sequence.keys
    if sequence.key_page_size != size:
        sequence.key_page_size = size
        keys[:] = [root_key(sequence.request.spec.salt, worker.joined.weights_digest)]
    while len(keys) <= number + 1:
        first = (len(keys) - 1) * size
        keys.append(child_key(keys[-1], sequence.tokens[first : first + size]))
    return Content(keys[number + 1], tuple(sequence.tokens[number * size : (number + 1) * size]), keys[number])


def full_pages(worker: Worker, sequence: Sequence, num_tokens: int) -> list[Content]:
    """What the pages hold that the sequence's first `num_tokens` tokens fill; nothing without a prefix cache."""
    if not worker.settings.prefix_cache:
        return []
    return [page_content(worker, sequence, number) for number in range(num_tokens // worker.page_size)]


def find_prefix(worker: Worker, sequence: Sequence) -> list[Hit]:
    """Pages of the worker that hold the head of the sequence. Its last token is always left to compute.

    So are tokens that lead to prompt tokens whose log-probabilities are still to be told.
    """
    hits: list[Hit] = []
    if worker.settings.prefix_cache:
        for number in range(sequence.most_found // worker.page_size):
            hit = find_page(worker, sequence, number)
            if hit is None:
                break
            hits.append(hit)
    return hits


def find_page(worker: Worker, sequence: Sequence, number: int) -> Hit | None:
    """A page that holds what the sequence's page `number` holds: on the device, else on the host tier."""
    content = page_content(worker, sequence, number)
    for pool in (worker.device, worker.host):
        page = pool.find(content)
        if page is not None:
            return Hit(pool, page, content)
    return None


def publish(worker: Worker, sequence: Sequence, before: int) -> None:
    """The step that wrote them is acknowledged: pages that became full since `before` computed tokens can be found."""
    if worker.settings.prefix_cache:
        for number in range(before // worker.page_size, sequence.computed // worker.page_size):
            worker.device.publish(sequence.table[number], page_content(worker, sequence, number))


def pin_keys(worker: Worker, salt: str, tokens: Tokens[int]) -> list[bytes]:
    """Keys of the pages that these tokens fill."""
    keys = [root_key(salt, worker.joined.weights_digest)]
    for first in range(0, len(tokens) - worker.page_size + 1, worker.page_size):
        keys.append(child_key(keys[-1], tokens[first : first + worker.page_size]))
    return keys[1:]
