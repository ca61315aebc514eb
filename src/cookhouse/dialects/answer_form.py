"""The form that an answer is asked to have, whatever dialect asks."""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    kind: Literal["json", "regex", "choice", "grammar"]
    value: Any
    """A JSON schema; a regular expression; texts, of which it is one; a grammar in Lark or GBNF."""
    field: str
    """The name by which it was given."""
