"""Samplers of rollouts, fake ones, completers over them, and seeds."""
