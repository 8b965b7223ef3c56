"""Finding pages that already hold a prefix.

A full page is known by SHA-256 over its parent's key and its token ids; the first parent is SHA-256 over what must never be
mixed: salt, weights, adapter. On a hit the token ids are compared too, so that a collision costs speed, never correctness.
"""

from array import array
from hashlib import sha256

from octavo_scheduler.core.request import Sequence
from octavo_scheduler.core.worker import Worker

ADAPTER = b""
"""There are no adapters yet; the place in the key is theirs."""


def root_key(salt: str, weights_digest: bytes) -> bytes:
    """The parent of every first page. Each part is preceded by its length, so that no two lists of parts look alike."""
    digest = sha256()
    for part in (salt.encode(), weights_digest, ADAPTER):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def page_tokens(sequence: Sequence, number: int, page_size: int) -> tuple[int, ...]:
    return tuple(sequence.tokens[number * page_size : (number + 1) * page_size])


def page_key(worker: Worker, sequence: Sequence, number: int) -> bytes:
    """Key of the sequence's page `number`, all of whose tokens are known. Remembered, since tokens never change."""
    if sequence.key_page_size != worker.page_size:
        sequence.key_page_size = worker.page_size
        sequence.keys = [root_key(sequence.request.spec.salt, worker.joined.weights_digest)]
    while len(sequence.keys) <= number + 1:
        tokens = page_tokens(sequence, len(sequence.keys) - 1, worker.page_size)
        sequence.keys.append(sha256(sequence.keys[-1] + array("i", tokens).tobytes()).digest())
    return sequence.keys[number + 1]


def find_prefix(worker: Worker, sequence: Sequence) -> list[int]:
    """Pages of the worker's device that hold the head of the sequence. Its last token is always left to compute."""
    pages: list[int] = []
    if worker.settings.prefix_cache:
        for number in range((len(sequence.tokens) - 1) // worker.page_size):
            tokens = page_tokens(sequence, number, worker.page_size)
            page = worker.device.find(page_key(worker, sequence, number), tokens)
            if page is None:
                break
            pages.append(page)
    return pages


def publish(sequence: Sequence, before: int) -> None:
    """The step that wrote them is acknowledged: pages that became full since `before` computed tokens can be found."""
    worker = sequence.worker
    assert worker is not None, "a row is computed somewhere"
    if worker.settings.prefix_cache:
        for number in range(before // worker.page_size, sequence.computed // worker.page_size):
            key = page_key(worker, sequence, number)
            worker.device.publish(sequence.table[number], key, page_tokens(sequence, number, worker.page_size))
