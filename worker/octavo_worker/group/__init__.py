"""Tensor parallelism: one worker made of N ranks, processes that share the work of every matrix.

    scheduler ◄──ZeroMQ──► rank 0 ──orders──► rank 1 … N-1        torch.distributed, on this machine only
                              └── sums and logits, between all ──┘

Every rank loads its rows or columns of each matrix (`shard`), holds its KV heads of every page and applies the same plans.
Rank 0 (`lead`) speaks to the scheduler and hands each plan on before it executes it. The captured step is cut where ranks
exchange results (`Ops.call`). `seat` says which rank a process is, and starts the others where nobody else did; `ranks` is
the only module that knows torch.distributed. A rank that is lost ends the group.
"""
