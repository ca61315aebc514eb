"""The recorded conversations of one rollout, and prompts that continue them token for token."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from cookhouse.chat import Message, Renderer
from cookhouse.rl.env.continuing import continued


class Conversations:
    """Every call of a rollout, by the conversation that it made. Which of them a request goes on from is decided by
    what its messages mean, since clients write anew what a model said: `meaning`.
    """

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._sequences: dict[bytes, list[int]] = {}
        """Prompt and answer, by the meaning of all messages up to the answer."""
        self._answers: dict[str, int] = {}
        """Number of tokens of each answer, by its meaning."""
        self.num_again = 0
        """Tokens so far that the model said, an agent sent back unchanged, and a prompt has tokenized again."""

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a prompt, which go on from the longest conversation that was recorded.

        Raises:
            InputError: the format of the model cannot write the messages.
        """
        rendered = self._renderer.build_generation_prompt(messages).to_ints()
        meanings = [meaning(message) for message in messages]
        digests = _digests(meanings)
        for length in range(len(messages), 0, -1):
            sequence = self._sequences.get(digests[length - 1])
            if sequence is None:
                continue
            tokens = continued(self._renderer, sequence, messages[:length], rendered)
            if tokens is not None:
                self.num_again += self._num_said(meanings[length:])
                return tokens
        self.num_again += self._num_said(meanings)
        return rendered

    def record(self, messages: Sequence[Message], prompt: Sequence[int], said: Message, tokens: Sequence[int]) -> None:
        """Remember what was sampled for a prompt, and the message that it was told as."""
        meanings = [meaning(message) for message in (*messages, said)]
        self._sequences[_digests(meanings)[-1]] = [*prompt, *tokens]
        self._answers[meanings[-1]] = len(tokens)

    def _num_said(self, meanings: Sequence[str]) -> int:
        return sum(self._answers.get(one, 0) for one in meanings)


def meaning(message: Message) -> str:
    """A message without how it is spelled: arguments of calls as JSON values, and neither ids nor settings."""
    content = message["content"]
    parts: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    texts = "".join(part["text"] for part in parts if part["type"] == "text")
    thoughts = "".join(part["thinking"] for part in parts if part["type"] == "thinking")
    calls = [
        [call["function"]["name"], _value(call["function"]["arguments"])] for call in message.get("tool_calls", [])
    ]
    known = [message["role"], texts, thoughts, calls, message.get("tools", [])]
    return json.dumps(known, sort_keys=True)


def _value(arguments: object) -> object:
    """Arguments as a JSON value; text that is none stays text."""
    if not isinstance(arguments, str):
        return _number(arguments)
    try:
        return _number(json.loads(arguments))
    except (ValueError, RecursionError):
        return arguments


def _number(value: object) -> object:
    """The value with 2.0 as 2, which some clients cannot distinguish."""
    if isinstance(value, Mapping):
        return {name: _number(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_number(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _digests(meanings: Sequence[str]) -> list[bytes]:
    """Of each beginning of a conversation."""
    digests, before = [], b""
    for one in meanings:
        before = hashlib.sha256(before + one.encode()).digest()
        digests.append(before)
    return digests
