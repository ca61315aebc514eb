"""Readers of a run directory, by ranges and as plain data, while the run goes on writing it."""
