"""`octavo record FILE -- …`: a scheduler that records what its core does."""

import argparse
import sys
from collections.abc import Sequence

from octavo.audit import refuse_unpickling

from octavo_scheduler.__main__ import main as scheduler


def main(arguments: Sequence[str] | None = None) -> int:
    """Ends as the scheduler does."""
    parser = argparse.ArgumentParser(prog="octavo record", description="Run a scheduler and record what its core does.")
    parser.add_argument("--tokens", action="store_true", help="record token ids, tenants and salts as they are")
    parser.add_argument("file", metavar="FILE", help="the log to write; it must not exist")
    parser.add_argument("flags", metavar="-- FLAG", nargs="*", help="flags of `octavo scheduler`")
    options = parser.parse_args(arguments)
    return scheduler(["--record", options.file, *(["--record-tokens"] if options.tokens else []), *options.flags])


if __name__ == "__main__":
    refuse_unpickling()
    sys.exit(main())
