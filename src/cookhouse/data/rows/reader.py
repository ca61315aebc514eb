"""Reading one row, of any kind alike: its messages, and what stands before them."""

from collections.abc import Mapping, Sequence
from typing import Any

from cookhouse.chat import Message, is_empty, parse_messages, text_of, with_tools
from cookhouse.data.turns import as_list, from_dialog, from_sharegpt, tools_in, turns_in
from cookhouse.data.values import LeftOut, Nulls
from cookhouse.errors import InputError

SYSTEM = ("system", "system_prompt")
MATERIAL = ("input", "context")
"""What an instruction is about; only one of them may say something."""
BESIDE = (*SYSTEM, "tools", "history")
"""Fields that are read in addition to messages or a question, in rows of all kinds."""


class RowReader:
    """Reads the fields of one row. `used` has the names of those that were read, in order."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row
        self._nulls = Nulls()
        self.used: dict[str, None] = {}

    def left_out(self, place: str) -> tuple[LeftOut, ...]:
        """The nulls of a table that are no part of what was read."""
        return self._nulls.left_out(place)

    def listed(self, name: str) -> list[Message]:
        """A whole conversation: messages, or ShareGPT's turns. Raises `InputError` if it is none."""
        self.used[name] = None
        return parse_messages(from_sharegpt(as_list(self._row[name], name), self._nulls))

    def said(self, name: str, role: str, *, has_dialog: bool = False) -> list[Message]:
        """Text as one message of a role, or messages. `has_dialog`: text may be turns that begin with their speaker.

        Raises:
            InputError: it is neither.
        """
        return parse_messages(self._turns(name, role, has_dialog=has_dialog))

    def asked(self, name: str, *, has_dialog: bool = False) -> list[Message]:
        """Messages of the prompt: the turns before it, if any, and a question with what it is about."""
        turns = self._turns(name, "user", has_dialog=has_dialog)
        material = next((each for each in MATERIAL if not is_empty(self._row.get(each))), None)
        if name == "instruction" and material is not None and isinstance(turns[-1].get("content"), str):
            self.used[material] = None
            turns[-1] = {
                **turns[-1],
                "content": "\n\n".join(filter(None, [turns[-1]["content"], self._text(material)])),
            }
        self.used["history"] = None
        return parse_messages(
            from_sharegpt([*_history(as_list(self._row.get("history"), "history")), *turns], self._nulls)
        )

    def opened(self, messages: list[Message]) -> list[Message]:
        """The conversation after the row's system message, unless it begins with the same one, and with its tools.

        Raises:
            InputError: the row says two different ones.
        """
        messages = self._with_system(messages)
        if is_empty(self._row.get("tools")):
            return messages
        tools = tools_in(self._row["tools"], "tools", self._nulls)
        equipped = with_tools(messages, tools)
        if messages and messages[0].get("tools") and messages[0]["tools"] != equipped[0].get("tools"):
            raise InputError("tools and those of the first message differ; declare them once")
        return equipped

    def _turns(self, name: str, role: str, *, has_dialog: bool) -> list[Any]:
        value = self._row[name]
        self.used[name] = None
        if isinstance(value, str):
            turns = turns_in(value, name) or (from_dialog(value) if has_dialog else None)
            return turns or [{"role": role, "content": value}]
        if isinstance(value, Mapping):
            value = [value]
        if not isinstance(value, Sequence) or isinstance(value, bytes) or not value:
            kind = "an empty list" if value == [] else type(value).__name__
            raise InputError(f"{name} must be text or messages, not {kind}")
        turns = from_sharegpt(value, self._nulls)
        return [*turns]

    def _with_system(self, messages: list[Message]) -> list[Message]:
        said = {name: self._text(name) for name in SYSTEM if not is_empty(self._row.get(name))}
        if messages and messages[0]["role"] == "system":
            said = {"the first message": text_of(messages[0]), **said}
        if len({text.strip() for text in said.values()}) > 1:
            raise InputError(f"{' and '.join(said)} differ; give one system message")
        if not said or (messages and messages[0]["role"] == "system"):
            return messages
        return [*parse_messages([{"role": "system", "content": next(iter(said.values()))}]), *messages]

    def _text(self, name: str) -> str:
        value = self._row[name]
        if not isinstance(value, str):
            raise InputError(f"{name} must be a string, not {type(value).__name__}")
        return value


def _history(value: object) -> list[dict[str, Any]]:
    """Earlier turns, given as pairs of a question and its answer or as messages."""
    if is_empty(value):
        return []
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise InputError(f"history must be a list of [question, answer], not {type(value).__name__}")
    if all(isinstance(turn, Mapping) for turn in value):
        return [*value]
    turns: list[dict[str, Any]] = []
    for turn in value:
        if not isinstance(turn, Sequence) or len(turn) != 2 or not all(isinstance(said, str) for said in turn):
            raise InputError("history must be a list of [question, answer], both of them strings")
        turns += [{"role": "user", "content": turn[0]}, {"role": "assistant", "content": turn[1]}]
    return turns
