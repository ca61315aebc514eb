"""Weights as a model of Inspect AI, and its tasks as evaluators. It is an extra: nothing imports this early."""
