"""The form in which a chat template is given calls: templates differ in what they take."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_letters, digits
from typing import Any

from cookhouse.chat.tool_calls import read_json
from cookhouse.errors import InputError

_LENGTH = 9
_LETTERS = digits + ascii_letters
_SHORT = re.compile(rf"[A-Za-z0-9]{{{_LENGTH}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallForm:
    """Form in which calls are given."""

    as_text: bool = False
    """Arguments as JSON text, not as an object."""
    short_ids: bool = False
    """Ids of nine letters and digits, as templates of Mistral's kind ask for."""


CALL_FORMS = tuple(
    CallForm(as_text=as_text, short_ids=short_ids) for short_ids in (False, True) for as_text in (False, True)
)
"""All of them, in the order in which they are tried."""


def read_arguments(arguments: Any, *, as_text: bool, keeps_text: bool) -> Any:
    """The arguments of a call, as a template takes them; `keeps_text`: text is left as it stands."""
    if isinstance(arguments, str):
        return arguments if as_text or keeps_text else _object_of(arguments)
    return json.dumps(arguments, ensure_ascii=False) if as_text else arguments


def shorten_ids(messages: Sequence[dict[str, Any]]) -> None:
    """Give every call in place an id of nine letters and digits, and every result that of the call that it answers.
    An id that is one stays; others, and calls without any, always get the same.
    """
    ids: list[str] = []
    """Of the calls that results may answer now."""
    num_calls = num_results = 0
    for message in messages:
        if message["role"] != "tool":
            ids, num_results = [], 0
            for call in message.get("tool_calls", ()):
                call["id"] = short_id(call.get("id") or f"call {num_calls}")
                ids.append(call["id"])
                num_calls += 1
            continue
        given = message.get("tool_call_id")
        if given is not None:
            message["tool_call_id"] = short_id(given)
        elif num_results < len(ids):
            message["tool_call_id"] = ids[num_results]
        num_results += 1


def short_id(given: str) -> str:
    """An id of nine letters and digits for one of any form."""
    if _SHORT.fullmatch(given):
        return given
    number = int.from_bytes(hashlib.sha256(given.encode()).digest())
    found = ""
    for _ in range(_LENGTH):
        number, rest = divmod(number, len(_LETTERS))
        found += _LETTERS[rest]
    return found


def _object_of(text: str) -> Mapping[str, Any] | str:
    try:
        value = read_json(text)
    except InputError:
        return text
    return value if isinstance(value, dict) else text
