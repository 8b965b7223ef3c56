"""Is a plan consistent with itself, with the slots and with the worker's limits?

`foresee` answers before anything changes: it plays the plan on a copy of the slots' counts and raises PlanRefused at
the first contradiction. What it returns are the counts as they stand when the rows begin.
"""

from collections.abc import Callable

import numpy as np
from octavo_kernels.ops import MOST_LOGPROBS

from octavo_worker.batch import INT32, Forks, Growth, Moves, NewSlots, Plan, Rows, refuse
from octavo_worker.errors import PlanRefused, Reason
from octavo_worker.limits import MOST_BIASES, MOST_PROMPT_SCORES, Limits
from octavo_worker.masks import TOKENS_PER_WORD
from octavo_worker.slots import Array, Counts, Slots


def foresee(plan: Plan, slots: Slots, limits: Limits, last_step: int) -> Counts:
    """The counts before the rows run. Raises PlanRefused; changes nothing."""
    check_step(plan, last_step)
    check_moves("swap_out", plan.swap_out, limits.device_pages, limits.host_pages)
    check_moves("swap_in", plan.swap_in, limits.host_pages, limits.device_pages)
    check_moves("copy", plan.copy, limits.device_pages, limits.device_pages)
    within("zero", plan.zero, 1, limits.device_pages)
    draft = Counts.empty(slots.max_slots) if plan.full else slots.counts.copy()
    free(plan.freed, draft, slots)
    start(plan.new, draft, slots, limits)
    grow(plan.growth, draft, slots, limits)
    fork(plan.forks, draft, slots)
    check_rows(plan.rows, plan.forks, draft, slots, limits)
    return draft


def check_step(plan: Plan, last_step: int) -> None:
    """Steps have no gaps; a full plan may come after some that were ignored."""
    if plan.step != last_step + 1 and not (plan.full and plan.step > last_step):
        raise PlanRefused(Reason.OUT_OF_SEQUENCE, f"step {plan.step} came after step {last_step}")


def within(name: str, values: Array, low: int, high: int) -> None:
    if len(values) and not (low <= values.min() and values.max() <= high):
        raise refuse(f"{name} lies in {low}..{high}, and the plan has {values.min()}..{values.max()}")


def once(name: str, values: Array) -> None:
    if len(values) > 1 and len(np.unique(values)) < len(values):
        raise refuse(f"{name} names something twice")


def active(name: str, slot: Array, draft: Counts, slots: Slots) -> None:
    within(name, slot, 0, slots.max_slots - 1)
    if not draft.is_active[slot].all():
        raise refuse(f"{name} names slot {slot[~draft.is_active[slot]][0]}, which is not in use")


def idle(name: str, slot: Array, draft: Counts, slots: Slots) -> None:
    within(name, slot, 0, slots.max_slots - 1)
    once(name, slot)
    if draft.is_active[slot].any():
        raise refuse(f"{name} names slot {slot[draft.is_active[slot]][0]}, which is in use")


def check_moves(name: str, moves: Moves, num_source: int, num_target: int) -> None:
    within(f"{name}.source", moves.source, 1, num_source)
    within(f"{name}.target", moves.target, 1, num_target)
    once(f"{name}.target", moves.target)


def free(slot: Array, draft: Counts, slots: Slots) -> None:
    active("freed_slot", slot, draft, slots)
    once("freed_slot", slot)
    draft.clear(slot)


def start(new: NewSlots, draft: Counts, slots: Slots, limits: Limits) -> None:
    if not len(new.slot):
        return
    idle("new_slots.slot", new.slot, draft, slots)
    within("new_slots.num_tokens", new.num_tokens, 1, slots.max_context)
    within("new_slots.num_prompt", new.sampling["num_prompt"], 0, slots.max_context)
    within("new_slots.num_computed", new.num_computed, 0, slots.max_context)
    within("new_slots.tokens", new.tokens, 0, limits.vocab_size - 1)
    if (new.num_computed >= new.num_tokens).any() or (new.sampling["num_prompt"] > new.num_tokens).any():
        raise refuse("a new slot has more prompt or computed tokens than tokens; its last token is always computed")
    check_sampling(new.sampling)
    if len(new.biases):
        check_biases(new, limits)
    draft.is_active[new.slot] = True
    draft.length[new.slot], draft.computed[new.slot] = new.num_tokens, new.num_computed


def check_sampling(sampling: dict[str, Array]) -> None:
    """Ranges that the sampler relies on. A comparison with NaN is false, so NaN is refused too."""
    most = float(np.finfo(np.float32).max)
    fits: dict[str, Callable[[Array], Array]] = {
        "temperature": lambda x: (x >= 0) & (x <= most),
        "top_p": lambda x: (x > 0) & (x <= 1),
        "min_p": lambda x: (x >= 0) & (x <= 1),
        "top_k": lambda x: x >= 0,
        "repetition_penalty": lambda x: (x > 0) & (x <= most),
        "presence_penalty": lambda x: abs(x) <= most,
        "frequency_penalty": lambda x: abs(x) <= most,
    }
    for name, fit in fits.items():
        if not fit(sampling[name]).all():
            raise refuse(f"new_slots.{name} is out of range")


def check_biases(new: NewSlots, limits: Limits) -> None:
    """A bias of NaN or infinity would make a row of logits no numbers."""
    within("new_slots.num_biases", new.num_biases, 0, MOST_BIASES)
    token, bias, _, context = new.biases.T
    within("new_slots.bias_token", token, 0, limits.vocab_size - 1)
    if not (np.ascontiguousarray(bias).view(np.float32) <= np.finfo(np.float32).max).all():
        raise refuse("new_slots.bias is out of range")
    first = np.repeat(new.num_biases.cumsum() - new.num_biases, new.num_biases)
    if (context < -1).any() or (context > np.arange(len(context)) - first).any():
        raise refuse("new_slots.bias_context names biases that its slot does not have")


def grow(growth: Growth, draft: Counts, slots: Slots, limits: Limits) -> None:
    active("growth.slot", growth.slot, draft, slots)
    once("growth.slot", growth.slot)
    within("growth.pages", growth.pages, 1, limits.device_pages)
    length = draft.num_pages[growth.slot] - growth.num_dropped
    if ((growth.num_dropped < 0) | (length < 0)).any():
        raise refuse("growth.num_dropped lies between 0 and the pages of the slot's table")
    length += growth.num_pages
    within("a block table's length", length, 0, slots.max_pages)
    if (draft.computed[growth.slot] > length * limits.page_size).any():
        raise refuse("a block table ends before the tokens that its slot has computed")
    draft.num_pages[growth.slot] = length


def fork(forks: Forks, draft: Counts, slots: Slots) -> None:
    if not len(forks.source):
        return
    active("forks.source", forks.source, draft, slots)
    idle("forks.target", forks.target, draft, slots)
    for column in (draft.is_active, draft.length, draft.computed, draft.num_pages):
        column[forks.target] = column[forks.source]


def check_rows(rows: Rows, forks: Forks, draft: Counts, slots: Slots, limits: Limits) -> None:
    active("rows.slot", rows.slot, draft, slots)
    once("rows.slot", rows.slot)
    within("rows.num_tokens", rows.num_tokens, 1, limits.max_step_tokens)
    if rows.num_tokens.sum() > limits.max_step_tokens:
        raise refuse(f"a step computes at most {limits.max_step_tokens} tokens, not {rows.num_tokens.sum()}")
    end = draft.computed[rows.slot] + rows.num_tokens
    if (end > draft.length[rows.slot]).any():
        raise refuse("a row computes more tokens than its slot has")
    if (end > draft.num_pages[rows.slot] * limits.page_size).any():
        raise refuse("a row computes positions that its block table does not cover")
    check_samples(rows, end, forks, draft, slots)
    if len(rows.score_slot):
        check_scores(rows, end, draft, slots)
    check_masks(rows, limits)


def check_samples(rows: Rows, end: Array, forks: Forks, draft: Counts, slots: Slots) -> None:
    active("rows.sample_slot", rows.sample_slot, draft, slots)
    once("rows.sample_slot", rows.sample_slot)
    sampling = rows.num_samples > 0
    if (end[sampling] < draft.length[rows.slot[sampling]]).any():
        raise refuse("a row samples a token that its slot already has")
    if (draft.length[rows.sample_slot] >= slots.max_context).any():
        raise refuse(f"a sequence holds at most {slots.max_context} tokens")
    owner = np.repeat(rows.slot, rows.num_samples)
    made = dict(zip(forks.target.tolist(), forks.source.tolist(), strict=True))
    for slot, row in zip(rows.sample_slot.tolist(), owner.tolist(), strict=True):
        if slot != row and made.get(slot) != row:
            raise refuse(f"slot {slot} is sampled from the row of slot {row}, of which it is no fork in this plan")


def check_scores(rows: Rows, end: Array, draft: Counts, slots: Slots) -> None:
    """A token has its log-probability from the row that computes the one before it: it is known, or sampled there."""
    active("rows.score_slot", rows.score_slot, draft, slots)
    within("rows.num_best", np.array([rows.num_best]), 0, MOST_LOGPROBS)
    owner = owners(rows, slots.max_slots)[rows.score_slot]
    if (owner < 0).any():
        raise refuse("rows.score_slot names a slot that has no row")
    computed = rows.score_position - 1
    is_computed = (computed >= draft.computed[rows.slot][owner]) & (computed < end[owner])
    is_sampled = np.isin(rows.score_slot, rows.sample_slot)
    if not (is_computed & (rows.score_position < draft.length[rows.score_slot] + is_sampled)).all():
        raise refuse("rows.score_position names a token that no row leads to")
    most = slots.max_slots + MOST_PROMPT_SCORES
    sampling = np.flatnonzero(rows.num_samples)
    needed = {*zip(owner.tolist(), computed.tolist(), strict=True)}
    needed.update(zip(sampling.tolist(), (end[sampling] - 1).tolist(), strict=True))
    if max(len(needed), len(rows.score_slot)) > most:
        raise refuse(f"a step has at most {most} rows of logits, and tells the log-probabilities of as many tokens")


def owners(rows: Rows, max_slots: int) -> Array:
    """int64 [slots]: the row that computes or samples a slot; -1: none."""
    owner = np.full(max_slots, -1)
    owner[rows.sample_slot] = np.repeat(np.arange(len(rows.slot)), rows.num_samples)
    owner[rows.slot] = np.arange(len(rows.slot))
    return owner


def late_masks(data: bytes, rows: Rows, limits: Limits) -> Array:
    """Masks that followed: int32 [masked rows, words]. Where nobody waits for the samples there are none, and any token may
    be drawn. Raises ValueError: the plan is under way and cannot be refused."""
    count, most = len(rows.masked), -(-limits.vocab_size // TOKENS_PER_WORD)
    words, rest = divmod(len(data), count * INT32.itemsize)
    if rest or words > most:
        raise ValueError(f"{len(data)} bytes are no {count} masks of at most {limits.vocab_size} tokens")
    return np.frombuffer(data, INT32).reshape(count, words) if data else np.full((count, most), -1, INT32)


def check_masks(rows: Rows, limits: Limits) -> None:
    within("rows.masked_row", rows.masked, 0, len(rows.slot) - 1)
    if (np.diff(rows.masked) <= 0).any():
        raise refuse("rows.masked_row does not ascend")
    if not rows.num_samples[rows.masked].all():
        raise refuse("rows.masked_row names a row that samples nothing")
    if rows.mask.shape[1] * TOKENS_PER_WORD >= limits.vocab_size + TOKENS_PER_WORD:
        raise refuse(f"a mask has {rows.mask.shape[1]} words, more than {limits.vocab_size} tokens need")
