"""Faults of real processes: workers that die at a chosen moment, freeze, or fall silent behind a network."""
