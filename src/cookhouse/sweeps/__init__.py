"""Sweeps: one recipe run with several settings, and the runs compared."""
