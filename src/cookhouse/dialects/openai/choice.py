"""One sample of a chat as it grows: text, thinking and calls, separated as its renderer reads them."""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from cookhouse.chat import Delta, ResponseStream, UnparsedToolCall
from cookhouse.chat.tool_calls import write_arguments
from cookhouse.dialects.openai.logprobs import ScoredToken, scored_sample
from cookhouse.dialects.sampled import SampledSequence
from cookhouse.dialects.texts import StopCutter, TokenTexts


@dataclass
class ChatChoice:
    """One sample as it grows."""

    stream: ResponseStream
    stops: Sequence[str]
    texts: TokenTexts
    max_calls: int | None = None
    """Further calls are dropped; None: as many as the model makes."""
    is_ended: bool = False
    finish_reason: str = "length"
    scored: list[ScoredToken] = field(default_factory=list)
    """Those that no delta has been given with."""
    num_calls: int = 0
    _tokens: list[int] = field(default_factory=list)
    """Those that `next_tokens` has not given."""
    _cutters: dict[str, StopCutter] = field(default_factory=dict)

    def feed(self, sequence: SampledSequence) -> list[dict[str, Any]]:
        """Take the next tokens; deltas as they are sent."""
        if self.is_ended:
            return []
        tokens = sequence.tokens_T.tolist()
        self._tokens += tokens
        scored = scored_sample(sequence)
        if sequence.is_stopped and self.texts.is_special(tokens[-1]):
            del scored[-1]
        self.scored += scored
        return [delta for piece in self._pieces(tokens) for delta in self._said(self.stream.feed(piece))]

    def _pieces(self, tokens: list[int]) -> list[list[int]]:
        """The tokens that a stop may be spelled by one at a time: what came before it, a call too, was said."""
        longest = max((len(stop.encode()) for stop in self.stops), default=0)
        first = max(len(tokens) - longest, 0)
        return [tokens[:first], *([token] for token in tokens[first:])]

    def next_tokens(self) -> list[int]:
        """The tokens since it was last asked, the one that stops included."""
        tokens, self._tokens = self._tokens, []
        return tokens

    def finish(self, *, is_stopped: bool) -> list[dict[str, Any]]:
        """Chunks of what was held back, after the last token."""
        said = self._said(self.stream.finish())
        for name, cutter in self._cutters.items():
            if rest := cutter.finish():
                said.append({name: rest})
        if self.num_calls:
            self.finish_reason = "tool_calls"
        elif is_stopped or self._is_cut:
            self.finish_reason = "stop"
        self.is_ended = True
        return said

    @property
    def _is_cut(self) -> bool:
        return any(cutter.is_cut for cutter in self._cutters.values())

    def _said(self, deltas: Iterable[Delta]) -> list[dict[str, Any]]:
        said: list[dict[str, Any]] = []
        for delta in deltas:
            if self._is_cut and "function" not in delta:
                continue  # sampling ends at a stop, so that a call that is whole was written before it
            if "function" in delta and self.num_calls == self.max_calls:
                continue
            if "function" in delta:
                said += self._flushed("tool_calls")
                said.append({"tool_calls": [self._call(delta)]})
            elif "error" in delta:  # a call that nobody can read is what it is: text
                text = cast("UnparsedToolCall", delta)["text"]
                said += self._text("content", f"\n{text}" if "content" in self._cutters else text)
            elif delta["type"] == "thinking":
                said += self._text("reasoning_content", delta["thinking"])
            elif delta["type"] == "text":
                said += self._text("content", delta["text"])
        return said

    def _text(self, name: str, text: str) -> list[dict[str, Any]]:
        said = self._flushed(name)
        if text := self._cutters.setdefault(name, StopCutter(self.stops)).feed(text):
            said.append({name: text})
        return said

    def _flushed(self, name: str) -> list[dict[str, Any]]:
        """Chunks of what was held of another part, which is over."""
        others = [(other, cutter.finish()) for other, cutter in self._cutters.items() if other != name]
        return [{other: rest} for other, rest in others if rest]

    def _call(self, call: Any) -> dict[str, Any]:
        self.num_calls += 1
        function = {"name": call["function"]["name"], "arguments": write_arguments(call["function"]["arguments"])}
        return {
            "index": self.num_calls - 1,
            "id": call.get("id") or f"call_{secrets.token_hex(12)}",
            "type": "function",
            "function": function,
        }


def message_of(said: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The message that deltas make up."""
    texts: dict[str, str] = {}
    calls: list[dict[str, Any]] = []
    for delta in said:
        for name, value in delta.items():
            if name == "tool_calls":
                calls += [{key: part for key, part in call.items() if key != "index"} for call in value]
            else:
                texts[name] = texts.get(name, "") + value
    content = texts.get("content") or (None if calls else "")
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    if "reasoning_content" in texts:
        message["reasoning_content"] = texts["reasoning_content"]
    return {**message, "tool_calls": calls} if calls else message
