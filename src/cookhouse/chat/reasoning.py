"""The reasoning of an assistant's answer, in the spellings that people have it in."""

from collections.abc import Mapping

from cookhouse.errors import InputError

_THINK, _END_THINK = "<think>", "</think>"


def split_tags(text: str) -> tuple[str | None, str]:
    """The reasoning that an answer opens with, None if there is none, and what follows it.

    It is what stands between tags, or before a closing one alone, as in samples of models whose prompt opens the tag. A
    block with something before it is text.
    """
    if _END_THINK not in text:
        return None, text
    opened = text.lstrip()
    if opened.startswith(_THINK):
        thinking, _, rest = opened.removeprefix(_THINK).partition(_END_THINK)
        return thinking, rest
    thinking, _, rest = text.partition(_END_THINK)
    return (None, text) if _THINK in thinking else (thinking, rest)


def begins_inside(text: str) -> bool:
    """True if an answer begins within its reasoning: a closing tag, and no opening one before it."""
    return split_tags(text)[0] is not None and not text.lstrip().startswith(_THINK)


def is_left_open(text: str) -> bool:
    """True if an answer opens its reasoning and never closes it, as one that was cut does."""
    return text.lstrip().startswith(_THINK) and _END_THINK not in text


def one_reasoning(said: Mapping[str, str]) -> str:
    """The reasoning that a message says in at least one place, by the names of these. One that is empty says nothing
    beside another.

    Raises:
        InputError: two of them differ by more than the white space around them.
    """
    full = {name: text for name, text in said.items() if text.strip()}
    if len({text.strip() for text in full.values()}) > 1:
        raise InputError(f"{' and '.join(full)} differ; keep the one that is to be trained on")
    return [*full.values(), *said.values()][0]
