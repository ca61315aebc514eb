"""A data set of one's own: a function that returns rows, in the shapes that a JSON Lines file may have.

    cookhouse run supervised dataset_path=examples/own_dataset.py:plurals test_path=examples/own_dataset.py:held_out

The rows are checked as those of a file are, and a run is resumed only while the function returns the same ones: so
draw from a seed what you draw by chance. A package offers its function by a name with an entry point of the group
`cookhouse.datasets`.
"""

from collections.abc import Iterator
from typing import Any

NOUNS = ("bird", "box", "bus", "car", "city", "dish", "door", "fox", "lady", "river", "story", "tree", "watch", "witch")
NUM_HELD_OUT = 4


def plurals() -> Iterator[dict[str, Any]]:
    """What to train on."""
    for noun in NOUNS[:-NUM_HELD_OUT]:
        yield conversation(noun)


def held_out() -> list[dict[str, Any]]:
    """What to measure on; a list does as well."""
    return [conversation(noun) for noun in NOUNS[-NUM_HELD_OUT:]]


def conversation(noun: str) -> dict[str, Any]:
    """One row: the messages, and a skill that evaluations report by."""
    question = f"What is the plural of {noun}?"
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": plural(noun)}]
    return {"messages": messages, "skill": "plurals"}


def plural(noun: str) -> str:
    """By the rules of spelling; no exceptions are among the nouns."""
    if noun.endswith("y"):
        return noun.removesuffix("y") + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "sh", "ch")) else "s")
