"""A reward of what a small model may do or not."""

from collections.abc import Sequence


def by_length(_prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
    return [float(len(completion) % 5) for completion in completions]
