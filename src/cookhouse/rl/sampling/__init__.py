"""Sampling of rollouts: samplers, fake ones, completers over them, and seeds."""
