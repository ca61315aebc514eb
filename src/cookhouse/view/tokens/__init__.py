"""Tokens as pages show them: what was sampled and trained on at a step, in the words of the run's model."""
