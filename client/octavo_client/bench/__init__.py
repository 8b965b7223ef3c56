"""`octavo bench`: load for a running server, and what its clients felt."""
