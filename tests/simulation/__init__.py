"""A deterministic simulation of the whole scheduler: the production core, codec and loop over a simulated network.

Only the link and the clock are replaced. One seed decides everything: pools, requests, latencies, faults.

Read in this order: `timeline` (time), `paper` (what a worker does to pages), `station` (how a worker talks), `network` (what
frames suffer), `scenario` (what a seed draws), `world` (a run), `watched`, `laws` and `oracle` (what must hold), `coverage`.
"""
