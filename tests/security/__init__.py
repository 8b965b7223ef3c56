"""Hostile input on every way in."""
