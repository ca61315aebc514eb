"""A conversation as it stands, and what is kept of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cookhouse.errors import InputError
from cookhouse.files import append_row

if TYPE_CHECKING:
    from cookhouse.chat import Message


@dataclass(kw_only=True)
class Conversation:
    """What was said so far."""

    system: str | None = None
    turns: "list[Message]" = field(default_factory=list)
    """Of user and assistant; a question that was not answered is the last one."""
    num_draws: int = 0
    """Of the last answer."""

    @property
    def messages(self) -> "Sequence[Message]":
        """All of it, as a model is asked."""
        first: list[Message] = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*first, *self.turns]

    def ask(self, question: str) -> None:
        """Say something; a question before it that was not answered is taken back."""
        if self.turns and self.turns[-1]["role"] == "user":
            self.turns.pop()
        self.turns.append({"role": "user", "content": question})
        self.num_draws = 0

    def ask_again(self) -> None:
        """Take the last answer back.

        Raises:
            InputError: nothing was asked.
        """
        if not self.turns:
            raise InputError("nothing was asked yet; ask first, and /again samples another answer")
        if self.turns[-1]["role"] != "user":
            self.turns.pop()
            self.num_draws += 1

    def answered(self, message: "Message") -> None:
        """Keep an answer, or what there is of one that was stopped."""
        self.turns.append(message)

    def clear(self) -> None:
        """Begin anew, with the same system message."""
        self.turns.clear()

    def save(self, file_name: str) -> str:
        """Append it to a JSONL file that can be trained on, as one line; what to say of that.

        Raises:
            InputError: nothing was answered yet, or the file holds something else.
        """
        if not self.turns or self.turns[-1]["role"] == "user":
            raise InputError("the last question has no answer yet: nothing is there to train on")
        path = Path(file_name).expanduser()
        number = append_row(path, {"messages": list(self.messages)})
        return f"saved as line {number:,} of {path}: cookhouse run supervised dataset_path={path}"
