"""What `octavo VERB` does, one module a verb. Each has `add(subparsers)` and a function that returns the exit code."""
