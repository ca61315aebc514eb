"""What typer found wrong with the words typed, in one line and in our words."""

from collections.abc import Mapping
from typing import Any

import typer

_WANTED: Mapping[str, str] = {
    "int_parsing": "is no whole number",
    "int_from_float": "is no whole number",
    "float_parsing": "is no number",
    "bool_parsing": "is neither true nor false",
    "greater_than_equal": "is less than {ge}, the least allowed",
    "greater_than": "has to be more than {gt}",
    "less_than_equal": "is more than {le}, the most allowed",
    "less_than": "has to be less than {lt}",
}
"""What is wrong with a value, by the type of pydantic's error, which typer checks values with."""


def usage_message(error: typer.TyperException) -> str:
    """What to tell the user of an error in the words of a command."""
    near = getattr(error, "possibilities", None)
    said = error.message if near else error.format_message()
    reason = _reason(error.__cause__)
    if reason is not None:
        said = said.removesuffix(error.message.rstrip(".")).removesuffix(error.message) + reason
    said = " ".join(said.split()).rstrip(".")
    return f"{said[:1].lower()}{said[1:]}" + (f"; did you mean {' or '.join(near)}?" if near else "")


def _reason(cause: Any) -> str | None:
    """What is wrong with a value; None: that is no error of a value's check."""
    errors = getattr(cause, "errors", None)
    if not callable(errors):
        return None
    first = errors()[0]
    wanted = _WANTED.get(first["type"])
    if wanted is None:
        return str(first["msg"]).removeprefix("Value error, ")
    return f"{first['input']!r} {wanted.format(**first.get('ctx', {}))}"
