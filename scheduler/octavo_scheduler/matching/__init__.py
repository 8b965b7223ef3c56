"""Constrained answers: which tokens may come next.

`grammars` and `__main__` are a helper process, which compiles constraints and follows answers; `helper` starts and asks it;
`matchers` keeps it up with what the core commits, and tells the core the masks. Whatever compiling a client's words may do
to a process, it does it to helpers: to one for trials, which may be killed, and to one that follows what passed its trial.
"""
