"""`octavo doctor LOG`: the page size and the number of pages that suit the recorded requests, in sentences with numbers."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from octavo.audit import refuse_unpickling

from octavo_scheduler.event_log import EventLog, LogError
from octavo_scheduler.offline.rerun import Difference
from octavo_scheduler.offline.traffic import Asked, Traffic, read_traffic

PAGE_SIZES = (4, 8, 16, 32, 64, 128)
LEAST_FILLED = 0.95
"""A page size under which held slots are filled less than this wastes too much."""
MOST_LOST_HITS = 0.01
"""Share of all prompt tokens that a page size may lose to the finest one in the prefix cache."""
PAGE_ID_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class SizeReport:
    """What the recorded requests make of one page size."""

    page_size: int
    filled: float
    """Share of the slots in held pages that hold a token, over all tokens generated."""
    cached: float
    """Share of prompt tokens that earlier requests have computed in full pages, if nothing is ever evicted."""
    table_entries: float
    """Pages in a block table at the end of an answer, on average."""
    page_id_bytes: float
    """Bytes of page ids sent to workers for each token generated."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """`page_size` is the advised one; the tokens and pages are those that all requests alive at once needed, at most."""

    page_size: int
    requests: int
    sizes: list[SizeReport]
    peak_tokens: int
    peak_pages: int
    pool_pages: int
    """Pages of that size that the recorded pools would have had."""
    preemptions: int
    sentences: list[str]


def advise(traffic: Traffic) -> Advice:
    """Raises ValueError when no request was answered or no worker was there."""
    answered = [asked for asked in traffic.requests if asked.num_generated]
    if not answered or not traffic.joined:
        raise ValueError("no request was answered, so there are no lengths to advise from")
    sizes = [_report(size, answered) for size in PAGE_SIZES]
    best = _best(sizes)
    workers = {joined.worker: joined for joined in traffic.joined}.values()
    slots = sum(joined.device_pages * joined.page_size for joined in workers)
    peak = max(_peaks(answered, 1))
    advice = Advice(
        page_size=best.page_size,
        requests=len(answered),
        sizes=sizes,
        peak_tokens=peak,
        peak_pages=max(_peaks(answered, best.page_size)),
        pool_pages=slots // best.page_size,
        preemptions=traffic.figures.preemptions,
        sentences=[],
    )
    used = sorted({joined.page_size for joined in workers})
    return replace(advice, sentences=[*_size_sentences(advice, best, used), *_pool_sentences(advice)])


def _report(size: int, answered: Sequence[Asked]) -> SizeReport:
    tokens = held = entries = 0
    for asked in answered:
        for answer in asked.answers.values():
            lengths = range(len(asked.spec.prompt), len(asked.spec.prompt) + len(answer))
            tokens += sum(lengths)
            held += sum(-(-length // size) * size for length in lengths)
            entries += -(-(len(asked.spec.prompt) + len(answer)) // size)
    generated = sum(asked.num_generated for asked in answered)
    return SizeReport(
        page_size=size,
        filled=tokens / held,
        cached=_findable(size, answered) / sum(len(asked.spec.prompt) for asked in answered),
        table_entries=entries / sum(len(asked.answers) for asked in answered),
        page_id_bytes=entries * PAGE_ID_BYTES / generated,
    )


def _findable(size: int, answered: Sequence[Asked]) -> int:
    """Prompt tokens in full pages that an earlier request has left behind. The last token is always computed."""
    seen: set[int] = set()
    found = 0
    for asked in answered:
        prompt = asked.spec.prompt
        usable = (len(prompt) - 1) // size
        for key in list(_keys(asked.spec.salt, prompt, size))[:usable]:
            if key not in seen:
                break
            found += size
        for answer in asked.answers.values():
            seen.update(_keys(asked.spec.salt, (*prompt, *answer), size))
    return found


def _keys(salt: str, tokens: Sequence[int], size: int) -> Iterator[int]:
    key = hash(salt)
    for end in range(size, len(tokens) + 1, size):
        key = hash((key, *tokens[end - size : end]))
        yield key


def _best(sizes: Sequence[SizeReport]) -> SizeReport:
    """The largest that wastes little and finds nearly what the smallest finds; else the one that wastes least."""
    most = sizes[0].cached
    good = [s for s in sizes if s.filled >= LEAST_FILLED and most - s.cached <= MOST_LOST_HITS]
    return good[-1] if good else max(sizes, key=lambda s: s.filled)


def _peaks(answered: Sequence[Asked], size: int) -> Iterator[int]:
    """Pages that the requests alive at one time need to their ends, whenever one has arrived or ended."""
    changes: list[tuple[float, int]] = []
    for asked in answered:
        need = sum(-(-(len(asked.spec.prompt) + len(answer)) // size) for answer in asked.answers.values())
        changes.append((asked.at, need))
        if asked.ended_at is not None:
            changes.append((asked.ended_at, -need))
    now = 0
    for _, change in sorted(changes):
        now += change
        yield now


def _size_sentences(advice: Advice, best: SizeReport, used: Sequence[int]) -> Iterator[str]:
    finest, coarsest = advice.sizes[0], advice.sizes[-1]
    yield (
        f"Page size {best.page_size} suits these {advice.requests} answered requests: {best.filled:.1%} of the slots in "
        f"held pages hold a token, a block table ends with {best.table_entries:.1f} pages, and {best.page_id_bytes:.2f} "
        f"bytes of page ids go out for each token."
    )
    yield (
        f"With {finest.page_size} tokens a page {finest.filled:.1%} would be filled and tables have "
        f"{finest.table_entries:.1f} pages; with {coarsest.page_size} it were {coarsest.filled:.1%} and "
        f"{coarsest.table_entries:.1f}."
    )
    if finest.cached:
        yield (
            f"Prefixes: {best.cached:.1%} of all prompt tokens lie in full pages of {best.page_size} that earlier requests "
            f"left behind, {finest.cached:.1%} in pages of {finest.page_size}, {coarsest.cached:.1%} in pages of "
            f"{coarsest.page_size}."
        )
    for report in advice.sizes:
        if report.page_size in used and report is not best:
            yield (
                f"The recorded page size {report.page_size} fills {report.filled:.1%} and finds {report.cached:.1%}, "
                f"so a change gains {best.filled - report.filled:+.1%} and {best.cached - report.cached:+.1%}."
            )


def _pool_sentences(advice: Advice) -> Iterator[str]:
    size, peak, pool = advice.page_size, advice.peak_pages, advice.pool_pages
    yield (
        f"Pool: at the busiest moment the requests alive needed {advice.peak_tokens} tokens to their ends, "
        f"{peak} pages of {size}; the workers had room for {pool}, and {advice.preemptions} preemptions were made."
    )
    if pool < peak:
        yield (
            f"{peak - pool} more pages of {size} would let all of them run at once; short of that a host tier of as many "
            f"pages lets preempted requests come back without computing again."
        )
    else:
        yield f"{pool - peak} pages of {size} were never needed by running requests and could only serve as prefix cache."


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 advised, 2 wrong usage or nothing to advise from."""
    parser = argparse.ArgumentParser(
        prog="octavo doctor", description="Advise a page size and pool sizes from the requests in a recorded log."
    )
    parser.add_argument("log", metavar="LOG", type=Path)
    parser.add_argument("--json", action="store_true", help="print all figures as one line of JSON")
    options = parser.parse_args(arguments)
    try:
        advice = advise(read_traffic(EventLog(options.log)))
    except (LogError, Difference, OSError, ValueError) as error:
        print(f"octavo doctor: {error}", file=sys.stderr)
        return 2
    print(json.dumps(asdict(advice)) if options.json else "\n".join(advice.sentences))
    return 0


if __name__ == "__main__":
    refuse_unpickling()
    sys.exit(main())
