"""StepPlans made by hand, and a driver that brings sequences through a Runner as a scheduler would."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from octavo.v1 import step_pb2 as wire
from octavo_worker.runner import Runner

SAMPLING = {
    "temperature": ("<f4", 0.0),
    "top_p": ("<f4", 1.0),
    "min_p": ("<f4", 0.0),
    "top_k": ("<i4", 0),
    "repetition_penalty": ("<f4", 1.0),
    "presence_penalty": ("<f4", 0.0),
    "frequency_penalty": ("<f4", 0.0),
    "seed": ("<u8", 0),
    "branch": ("<u2", 0),
}

ALWAYS = 2**31 - 1
Bias = tuple[int, float, int, int]
"""Token, what is added, the length at which that ends, and the context."""


def uint16(*values: int) -> bytes:
    return np.array(values, "<u2").tobytes()


def int32(*values: int) -> bytes:
    return np.array(values, "<i4").tobytes()


def new_slots(
    histories: Mapping[int, Sequence[int]],
    *,
    computed: int = 0,
    num_prompt: int | None = None,
    sampling: Mapping[str, float] | None = None,
) -> wire.NewSlots:
    """Slots with their known tokens; the same sampling for all."""
    lengths = [len(tokens) for tokens in histories.values()]
    return wire.NewSlots(
        slot=uint16(*histories),
        num_tokens=int32(*lengths),
        num_prompt=int32(*(lengths if num_prompt is None else [num_prompt] * len(lengths))),
        num_computed=int32(*[computed] * len(lengths)),
        tokens=int32(*(token for tokens in histories.values() for token in tokens)),
        **{
            name: np.full(len(lengths), (sampling or {}).get(name, default), dtype).tobytes()
            for name, (dtype, default) in SAMPLING.items()
        },
    )


def growth(pages: Mapping[int, Sequence[int]], dropped: Sequence[int] = ()) -> wire.TableGrowth:
    """Pages added for each slot; `dropped` before for each slot (default: none)."""
    return wire.TableGrowth(
        slot=uint16(*pages),
        num_pages=int32(*(len(ids) for ids in pages.values())),
        pages=int32(*(page for ids in pages.values() for page in ids)),
        num_dropped=int32(*dropped),
    )


def moves(pairs: Mapping[int, int]) -> wire.PageMoves:
    return wire.PageMoves(source=int32(*pairs), target=int32(*pairs.values()))


def rows(counts: Mapping[int, int], samples: Sequence[int] | None = None) -> wire.Rows:
    """Tokens of each slot; `samples` of each row (default: one each)."""
    return wire.Rows(
        slot=uint16(*counts),
        num_tokens=int32(*counts.values()),
        num_samples=b"" if samples is None else uint16(*samples),
    )


def pairs_of(result: wire.StepResult, num_best: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and log-probabilities, [asked, 1 + num_best]."""
    pairs = np.frombuffer(result.logprobs, [("token", "<i4"), ("value", "<f4")]).reshape(-1, 1 + num_best)
    return pairs["token"], pairs["value"]


def scored(message: wire.Rows, places: Sequence[tuple[int, int]], num_best: int) -> wire.Rows:
    """The rows, with log-probabilities of the tokens at these (slot, position)."""
    message.score_slot = uint16(*(slot for slot, _ in places))
    message.score_position = int32(*(position for _, position in places))
    message.num_best = num_best
    return message


def biased(message: wire.NewSlots, biases: Sequence[Bias]) -> wire.NewSlots:
    """All biases belong to the first slot."""
    message.num_biases = int32(len(biases), *[0] * (len(message.slot) // 2 - 1))
    tokens, values, until, context = zip(*biases, strict=True)
    message.bias_token, message.bias = int32(*tokens), np.array(values, "<f4").tobytes()
    message.bias_until, message.bias_context = int32(*until), int32(*context)
    return message


def tokens_of(result: wire.StepResult) -> list[int]:
    ids: list[int] = np.frombuffer(result.token, "<i4").tolist()
    return ids


@dataclass
class Driver:
    """Numbers plans, hands out pages, and keeps what came out."""

    runner: Runner
    step: int = 0
    next_page: int = 1
    results: list[wire.StepResult] = field(default_factory=list)

    def send(self, **parts: object) -> list[int]:
        """Execute the next plan; the sampled tokens."""
        self.step += 1
        self.results.append(self.runner.execute(wire.StepPlan(step=self.step, **parts)))  # type: ignore[arg-type]
        return tokens_of(self.results[-1])

    def take(self, count: int) -> list[int]:
        self.next_page += count
        return list(range(self.next_page - count, self.next_page))

    def generate(
        self,
        prompt: Sequence[int],
        count: int,
        *,
        slot: int = 0,
        chunk: int = 512,
        sampling: Mapping[str, float] | None = None,
    ) -> list[int]:
        """`count` tokens after the prompt, prefilled in chunks; the slot is freed afterwards."""
        pages = self.take(-(-(len(prompt) + count) // self.runner.config.page_size))
        parts: dict[str, object] = {
            "new_slots": new_slots({slot: prompt}, sampling=sampling),
            "growth": growth({slot: pages}),
        }
        for start in range(0, len(prompt), chunk):
            size = min(chunk, len(prompt) - start)
            out = self.send(rows=rows({slot: size}, [int(start + size == len(prompt))]), **parts)
            parts = {}
        while len(out) < count:
            out += self.send(rows=wire.Rows(slot=uint16(slot)))
        self.send(freed_slot=uint16(slot))
        return out
