"""Guesses at columns of other names."""

import re
import shlex
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

CONVERSATIONS = (("prompt", "completion"), ("text",))
PREFERENCES = (("prompt", "chosen", "rejected"), ("prompt", "completion", "label"))
COMPARISONS = (("prompt", "completion_a", "completion_b", "label"), PREFERENCES[0])
PROMPTS = (("prompt",),)
"""Fields that make a row of a kind, the likeliest first."""
_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "prompt": (
            "prompt",
            "question",
            "query",
            "instruction",
            "problem",
            "request",
            "user",
            "customer",
            "input",
            "ask",
            "q",
        ),
        "completion": ("completion", "answer", "response", "reply", "output", "assistant", "solution", "target", "a"),
        "chosen": ("chosen", "preferred", "better", "accepted", "good"),
        "rejected": ("rejected", "dispreferred", "worse", "bad"),
        "completion_a": ("completion_a", "response_a", "answer_a", "output_a", "a"),
        "completion_b": ("completion_b", "response_b", "answer_b", "output_b", "b"),
        "label": ("label", "winner", "preference", "verdict"),
        "text": ("text", "content", "body", "document", "article", "story"),
        "conversation": ("conversation", "ticket", "thread", "case", "chat", "dialog", "session"),
        "turn": ("author", "speaker", "sender", "role", "from"),
        "message": ("message", "text", "body", "content", "comment"),
    }
)
"""What people call a field."""
_BESIDE = (
    *("system", "system_prompt", "tools", "history", "messages", "conversations"),
    *("prompt", "completion", "question", "instruction", "problem", "answer"),
)
"""Fields that may stand next to those by which the kind of a row is recognized."""


def offer(names: Sequence[str], kinds: Sequence[Sequence[str]]) -> str:
    """Settings with which rows with columns of these names are read as one of the kinds, the first that they fit."""
    if kinds is CONVERSATIONS and (messages := _message_rows(names)):
        return messages
    for fields in kinds:
        found = _guessed(names, fields)
        if found is not None:
            pairs = [f"{field}:{name}" for field, name in found.items() if field != name]
            return f"set {shlex.quote('columns=' + ','.join(pairs))}"
    pairs = [f"{field}:COLUMN" for field in kinds[0]]
    return f"where its columns have other names, say which they are: columns={','.join(pairs)}"


def _message_rows(names: Sequence[str]) -> str:
    """Settings with which rows of one message each are read; empty if the names do not speak of such."""
    found = {field: _called(names, field) for field in ("conversation", "turn", "message")}
    if None in found.values() or len(set(found.values())) < len(found):
        return ""
    settings = [f"conversation={found['conversation']}", f"turn={found['turn']}"]
    if found["message"] != "text":
        settings.append(f"columns=text:{found['message']}")
    return f"if each row is one message, set {shlex.join(settings)}"


def _called(names: Sequence[str], field: str) -> str | None:
    """The column that people's words for a field fit."""
    return next((each for word in _WORDS[field] for each in names if _is_called(each, word)), None)


def _guessed(names: Sequence[str], fields: Sequence[str]) -> Mapping[str, str] | None:
    """A column for each of the fields, by what people call them, or what alone is left; None if one has none."""
    found: dict[str, str] = {}
    for field in fields:
        open_names = [name for name in names if name not in found.values()]
        name = _called(open_names, field)
        if name is not None:
            found[field] = name
    missing, left = [*{*fields} - found.keys()], [*{*names} - {*found.values()}]
    if found and len(missing) == len(left) == 1:
        found |= dict(zip(missing, left, strict=True))
    elif missing:
        return None
    found = {field: found[field] for field in fields}
    is_new = any(field != name for field, name in found.items())
    # What is read from a command line has its columns apart by commas.
    return found if is_new and not any("," in name for name in found.values()) else None


def _is_called(name: str, word: str) -> bool:
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    return plain == word or (len(word) > 1 and word in plain.split("_"))


def in_our_case(row: Any, names: Sequence[str]) -> Any:
    """A row that has none of these fields as they are written, but some in other letters: with those renamed, and what
    may stand next to them. Any other as it is.
    """
    if not isinstance(row, Mapping) or any(name in row for name in names):
        return row
    known = {*names, *_BESIDE} - {*row}
    other = {name: name.lower() for name in row if isinstance(name, str) and name.lower() in known}
    is_ours = not set(names).isdisjoint(other.values()) and len(set(other.values())) == len(other)
    return {other.get(name, name): value for name, value in row.items()} if is_ours else row
