"""Mutants of the scheduler: wrong in one place each, to see whether the simulation notices.

`rules` makes them from the syntax tree, so that nobody picks easy ones; `written` holds those that somebody thought of;
`child` runs the simulation over one mutant in a process of its own.
"""
