"""The scheduling core: pure, four verbs, no I/O.

`Core.submit`, `Core.abort`, `Core.plan` and `Core.apply` are all there is. Time, ids, seeds and rates come in as
arguments; no socket, clock, thread or random source is used, so the same calls give the same plans, byte for byte.

Read in this order: `states` (what may happen), `pages` (who owns memory), `request` and `worker` (what is remembered),
`planner`, `draft` and `admission` (what a step does), `policy` and `waiting` (who goes first), `registry` and `core` (the
verbs), `audit` (what must always hold).
"""

from octavo_scheduler.core.core import Core
from octavo_scheduler.core.settings import Settings

__all__ = ["Core", "Settings"]
