"""A message as it comes, in blocks, and as a whole, which are read in one and the same way."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from cookhouse.chat import ResponseStream
from cookhouse.chat.tool_calls import write_arguments
from cookhouse.dialects.choice import ChatChoice, Said, joined
from cookhouse.dialects.openai.chat import ChatRequest
from cookhouse.dialects.sampled import SampleOutput
from cookhouse.dialects.texts import TokenTexts

_SIGNATURE = "cookhouse"
"""Of thinking: clients send it back, and some refuse a block without one."""


_EMPTY: Mapping[str, dict[str, Any]] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "function": {"input": {}},
}
"""Empty fields of a block as it begins, by its kind."""


class MessagesAnswer:
    """The answer to one request."""

    def __init__(
        self,
        request: ChatRequest,
        *,
        model: str,
        prompt: Sequence[int],
        streams: Sequence[ResponseStream],
        texts: TokenTexts,
    ) -> None:
        """As `ChatAnswer`, of one choice."""
        self._num_prompt = len(prompt)
        max_calls = 1 if request.choice().is_single else None
        self._choice = ChatChoice(streams[0], request.stops, texts, max_calls=max_calls, call_prefix="toolu_")
        self._head = {"id": f"msg_{secrets.token_hex(12)}", "type": "message", "role": "assistant", "model": model}
        self._is_begun = False
        self._kind: str | None = None
        """Of the block that is open."""
        self._num_blocks = 0

    def whole(self, output: SampleOutput) -> dict[str, Any]:
        """The answer at once."""
        (sequence,) = output.sequences
        said = [*self._choice.feed(sequence), *self._choice.finish(is_stopped=sequence.is_stopped)]
        usage = _usage_of(self._num_prompt, len(sequence.tokens_T), output.num_reused_tokens)
        return {**self._head, "content": [_block(one) for one in joined(said)], **self._end(), "usage": usage}

    def chunks(self, output: SampleOutput) -> list[dict[str, Any]]:
        """Events to send for an output of the engine."""
        (sequence,) = output.sequences
        events = self._begin()
        if output.is_partial and len(sequence.tokens_T):
            events += self._events(self._choice.feed(sequence))
        if (sequence.is_stopped or not output.is_partial) and not self._choice.is_ended:
            events += [*self._events(self._choice.finish(is_stopped=sequence.is_stopped)), *self._close()]
        if not output.is_partial:
            usage = _usage_of(self._num_prompt, len(sequence.tokens_T), output.num_reused_tokens)
            events.append({"type": "message_delta", "delta": self._end(), "usage": usage})
            events.append({"type": "message_stop"})
        return events

    def _begin(self) -> list[dict[str, Any]]:
        if self._is_begun:
            return []
        self._is_begun = True
        message: dict[str, Any] = {**self._head, "content": [], "stop_reason": None, "stop_sequence": None}
        return [{"type": "message_start", "message": {**message, "usage": _usage_of(self._num_prompt, 1, 0)}}]

    def _events(self, said: Sequence[Said]) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        for one in said:
            if one["type"] == "function" or one["type"] != self._kind:
                events += [*self._close(), self._open(one)]
            delta = {"type": "content_block_delta", "index": self._num_blocks, "delta": _delta(one)}
            events.append(delta)
        return events

    def _open(self, one: Said) -> dict[str, Any]:
        self._kind = one["type"]
        block = _block(one) | _EMPTY[self._kind]
        return {"type": "content_block_start", "index": self._num_blocks, "content_block": block}

    def _close(self) -> list[dict[str, Any]]:
        """The end of the block that is open, if there is one."""
        if self._kind is None:
            return []
        events: list[dict[str, Any]] = []
        if self._kind == "thinking":
            delta = {"type": "signature_delta", "signature": _SIGNATURE}
            events.append({"type": "content_block_delta", "index": self._num_blocks, "delta": delta})
        events.append({"type": "content_block_stop", "index": self._num_blocks})
        self._kind = None
        self._num_blocks += 1
        return events

    def _end(self) -> dict[str, Any]:
        reasons = {"tool_calls": "tool_use", "length": "max_tokens", "stop": "end_turn"}
        reason = reasons[self._choice.finish_reason]
        if reason == "end_turn" and self._choice.stop is not None:
            reason = "stop_sequence"
        return {"stop_reason": reason, "stop_sequence": self._choice.stop if reason == "stop_sequence" else None}


def _block(one: Said) -> dict[str, Any]:
    if one["type"] == "text":
        return {"type": "text", "text": one["text"]}
    if one["type"] == "thinking":
        return {"type": "thinking", "thinking": one["thinking"], "signature": _SIGNATURE}
    return {"type": "tool_use", "id": one["id"], "name": one["function"]["name"], "input": one["function"]["arguments"]}


def _delta(one: Said) -> dict[str, Any]:
    if one["type"] == "text":
        return {"type": "text_delta", "text": one["text"]}
    if one["type"] == "thinking":
        return {"type": "thinking_delta", "thinking": one["thinking"]}
    return {"type": "input_json_delta", "partial_json": write_arguments(one["function"]["arguments"])}


def _usage_of(num_prompt: int, num_sampled: int, num_reused: int) -> dict[str, int]:
    """In tokens; what was read of a cache is no part of the input."""
    return {
        "input_tokens": num_prompt - num_reused,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": num_reused,
        "output_tokens": num_sampled,
    }
