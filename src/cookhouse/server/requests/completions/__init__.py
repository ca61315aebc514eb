"""Completions for OpenAI's clients: weights by name, and answers while they are sampled."""
