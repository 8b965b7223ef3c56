"""How many of the KV slots that are held hold a token, on workload W, through real processes.

A pool of `--pages` pages of 16 tokens is too small for all 64 requests, so that most of the run is at saturation: something
waits for room. The scheduler counts, step by step, tokens in pages and slots of held pages. Contiguous reservation of the
longest answer, as servers did before paging, is worked out for the same requests beside it.
"""

import argparse
import asyncio
import json
import time
from pathlib import Path

from octavo_client import AsyncClient, SamplingParams
from octavo_client.default_model import find_default_model
from octavo_client.local import LocalServer

from benchmarks.workload import Work, workload

CONTEXT = 2048
"""What a server that reserves contiguously would keep for each request."""


async def run(address: str, work: list[Work]) -> dict[str, float]:
    async with AsyncClient(address) as client:
        params = [SamplingParams(max_tokens=n, temperature=0.0, ignore_eos=True) for _, n in work]
        started = time.perf_counter()
        outputs = await asyncio.gather(*(client.generate(w.prompt, p) for w, p in zip(work, params, strict=True)))
        seconds = time.perf_counter() - started
        status = await client.status()
    (worker,) = status.workers
    made = sum(len(output.outputs[0].token_ids) for output in outputs)
    assert made == sum(n for _, n in work)
    return {
        "slot_utilisation": round(worker.slot_utilisation, 4),
        "saturated_slot_utilisation": round(worker.saturated_slot_utilisation, 4),
        "contiguous_utilisation": round(sum(len(p) + n / 2 for p, n in work) / (CONTEXT * len(work)), 4),
        "page_size": worker.page_size,
        "pages": worker.device.total,
        "peak_pages": worker.device.peak_held,
        "preemptions": status.counters.drops + status.counters.swaps,
        "generated_tokens": made,
        "tokens_per_second": round(made / seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=None)
    parser.add_argument("--pages", type=int, default=600)
    parser.add_argument("--page-size", type=int, default=16)
    options = parser.parse_args()
    flags = [f"--pages={options.pages}", f"--page-size={options.page_size}", "--swap-space=1GiB"]
    with LocalServer(options.model or find_default_model(), worker_flags=flags) as server:
        figures = asyncio.run(run(server.address, workload()))
    print(json.dumps({"target": "utilisation", **figures}))


if __name__ == "__main__":
    main()
