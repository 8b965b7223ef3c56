"""What can be learnt from a recorded log, with no service running.

Read in this order: `rerun` (the recorded calls again), `replay` (are all plans equal?), `traffic` and `meter` (what the log
says), `latency` (how long a step takes), `what_if` and `comparison` (the same arrivals under other settings), `doctor`.
"""
