"""One sample of a chat as it grows: text, thinking and calls, separated as its renderer reads them."""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

from cookhouse.chat import Delta, ResponseStream, TextPart, ThinkingPart, ToolCall, UnparsedToolCall
from cookhouse.dialects.logprobs import ScoredToken, scored_sample
from cookhouse.dialects.sampled import SampledSequence
from cookhouse.dialects.shaped import ShapedTokens
from cookhouse.dialects.texts import StopCutter, TokenTexts

Said: TypeAlias = TextPart | ThinkingPart | ToolCall
"""More of the text or of the thinking of an answer, or a call, which has an id."""
_Kind: TypeAlias = Literal["text", "thinking"]


@dataclass
class ChatChoice:
    """One sample as it grows."""

    stream: ResponseStream
    stops: Sequence[str]
    texts: TokenTexts
    max_calls: int | None = None
    """Further calls are dropped; None: as many as the model makes."""
    call_prefix: str = "call_"
    """Of the ids of calls that the model gives none."""
    is_ended: bool = False
    finish_reason: str = "length"
    scored: list[ScoredToken] = field(default_factory=list)
    """Those that no delta has been given with."""
    num_calls: int = 0
    shaped: ShapedTokens = field(default_factory=ShapedTokens)
    _tokens: list[int] = field(default_factory=list)
    """Those that `next_tokens` has not given."""
    _cutters: dict[_Kind, StopCutter] = field(default_factory=dict)

    @property
    def stop(self) -> str | None:
        """The stop that ended it; None: none of those that were asked for."""
        return next((cutter.stop for cutter in self._cutters.values() if cutter.stop is not None), None)

    def feed(self, sequence: SampledSequence) -> list[Said]:
        """Take the next tokens; what they say."""
        if self.is_ended:
            return []
        tokens = sequence.tokens_T.tolist()
        self._tokens += tokens
        self.shaped.add(sequence)
        scored = scored_sample(sequence)
        if sequence.is_stopped and not sequence.is_grammar_end and self.texts.is_special(tokens[-1]):
            del scored[-1]
        self.scored += scored
        return [delta for piece in self._pieces(tokens) for delta in self._said(self.stream.feed(piece))]

    def _pieces(self, tokens: list[int]) -> list[list[int]]:
        """The tokens up to each mark, so that text and calls are said in the order in which they were written; those
        that a stop may be spelled by one at a time: what came before it, a call too, was said.
        """
        longest = max((len(stop.encode()) for stop in self.stops), default=0)
        first = max(len(tokens) - longest, 0)
        ends = [place for place, token in enumerate(tokens[:first], 1) if self.texts.is_special(token)]
        starts = [0, *ends]
        return [
            *(tokens[start:end] for start, end in zip(starts, [*ends, first], strict=True)),
            *([token] for token in tokens[first:]),
        ]

    def next_tokens(self) -> list[int]:
        """The tokens since it was last asked, the one that stops included."""
        tokens, self._tokens = self._tokens, []
        return tokens

    def finish(self, *, is_stopped: bool) -> list[Said]:
        """What was held back, after the last token."""
        said = self._said(self.stream.finish())
        said += [_part(kind, rest) for kind, cutter in self._cutters.items() if (rest := cutter.finish())]
        if self.num_calls:
            self.finish_reason = "tool_calls"
        elif is_stopped or self._is_cut:
            self.finish_reason = "stop"
        self.is_ended = True
        return said

    @property
    def _is_cut(self) -> bool:
        return self.stop is not None

    def _said(self, deltas: Iterable[Delta]) -> list[Said]:
        said: list[Said] = []
        for delta in deltas:
            if self._is_cut and "function" not in delta:
                continue  # sampling ends at a stop, so that a call that is whole was written before it
            if "function" in delta:
                if self.num_calls != self.max_calls:
                    said += [*self._flushed(None), self._call(cast("ToolCall", delta))]
            elif "error" in delta:  # a call that nobody can read is what it is: text, where it was written
                said += self._text("text", cast("UnparsedToolCall", delta)["text"])
            elif delta["type"] == "thinking":
                said += self._text("thinking", delta["thinking"])
            elif delta["type"] == "text":
                said += self._text("text", delta["text"])
        return said

    def _text(self, kind: _Kind, text: str) -> list[Said]:
        said = self._flushed(kind)
        if text := self._cutters.setdefault(kind, StopCutter(self.stops)).feed(text):
            said.append(_part(kind, text))
        return said

    def _flushed(self, kind: _Kind | None) -> list[Said]:
        """What was held of another part, which is over."""
        others = [(other, cutter.finish()) for other, cutter in self._cutters.items() if other != kind]
        return [_part(other, rest) for other, rest in others if rest]

    def _call(self, call: ToolCall) -> ToolCall:
        self.num_calls += 1
        return {**call, "id": call.get("id") or f"{self.call_prefix}{secrets.token_hex(12)}"}


def _part(kind: _Kind, text: str) -> TextPart | ThinkingPart:
    return {"type": "text", "text": text} if kind == "text" else {"type": "thinking", "thinking": text}


def joined(said: Iterable[Said]) -> list[Said]:
    """The same in as few parts as there are: texts and thoughts that follow each other are one."""
    parts: list[Said] = []
    for one in said:
        last = parts[-1] if parts else None
        if one["type"] == "text" and last is not None and last["type"] == "text":
            parts[-1] = _part("text", last["text"] + one["text"])
        elif one["type"] == "thinking" and last is not None and last["type"] == "thinking":
            parts[-1] = _part("thinking", last["thinking"] + one["thinking"])
        else:
            parts.append(one)
    return parts
