"""Rollouts: problems, sampling in environments, and learning from what was sampled by a policy loss."""
