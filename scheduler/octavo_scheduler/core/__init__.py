"""The scheduling core: pure, four verbs, no I/O.

`Core.submit`, `Core.abort`, `Core.plan` and `Core.apply` are all there is. Time, ids, seeds and rates come in as
arguments; no socket, clock, thread or random source is used, so the same calls give the same plans, byte for byte.

Read in this order: `states`, `pages`, `request`, `worker` and `plan` (what is remembered and said), `planner`, `draft` and
`admission` (a step), `prefix` and `tiers` (what is found where), `preempt` and `backoff` (who gives way, when it is back),
`policy`, `waiting` and `pace` (who goes first, how long it takes), `registry`, `capacity` and `core` (the verbs), `ledger`,
`audit` and `auditor` (what must always hold). `explain`, `outlook`, `turns`, `words` and `page_map` only ask. `settings`,
`events` and `counters` are plain records.
"""

from octavo_scheduler.core.core import Core
from octavo_scheduler.core.settings import Settings

__all__ = ["Core", "Settings"]
