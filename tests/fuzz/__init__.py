"""Mutated input on every way in; benchmarks/fuzz.py runs it in large numbers. Case n of a kind is the same in any run."""
