"""Compiles every Triton kernel for real GPUs, without one, and compares what came out with a checked-in table.

    python -m benchmarks.static_gpu            compare; prints one line of JSON
    python -m benchmarks.static_gpu --write    make the table, and docs/gpu-kernels.md, anew

It fails on spilled registers, on kernels that lost their matrix instructions, on numbers that are missing, and on those
that left the table. Kernels that multiply no matrices, and types that a GPU does not have, are marked and not counted.
"""

import argparse
import json
import sys

from benchmarks.static_gpu.columns import measured
from benchmarks.static_gpu.table import PAGE, TABLE, differences, page, read


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table and its page")
    write = parser.parse_args().write
    found = measured()
    if write:
        TABLE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(page(found), encoding="utf-8")
    counts, sentences = differences(found, read())
    print("\n".join(sentences), file=sys.stderr)
    print(json.dumps(counts))
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
