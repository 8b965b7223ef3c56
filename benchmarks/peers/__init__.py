"""Octavo beside other engines, alternately in one run: `python -m benchmarks.peers` (`make bench-peers`)."""
