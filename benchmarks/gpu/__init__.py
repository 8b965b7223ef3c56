"""One script for the day that a machine with a GPU is at hand."""
