"""Weights as users name them, and the checkpoints of runs."""
