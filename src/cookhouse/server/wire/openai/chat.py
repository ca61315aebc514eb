"""Chat completions: what is asked, and answers as they come and as a whole, which are read in one and the same way."""

import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

from pydantic import Field
from tinker import ModelInput

from cookhouse.chat import Delta, Message, Renderer, ResponseStream, UnparsedToolCall, parse_messages, with_tools
from cookhouse.chat.tool_calls import write_arguments
from cookhouse.engine.contract import SampledSequence, SampleOutput
from cookhouse.errors import InputError
from cookhouse.server.wire.openai.errors import FieldError
from cookhouse.server.wire.openai.fields import SamplingFields, TopLogprobs
from cookhouse.server.wire.openai.logprobs import ScoredToken, chat_logprobs, scored_sample
from cookhouse.server.wire.openai.texts import StopCutter, TokenTexts
from cookhouse.server.wire.openai.tools import check_tools

_MAX_MESSAGES = 4096
_MAX_TOOLS = 128


class ChatRequest(SamplingFields):
    messages: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=_MAX_MESSAGES)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    tools: Annotated[list[dict[str, Any]], Field(max_length=_MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None

    def check(self) -> None:
        super().check()
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise FieldError("max_tokens", "max_tokens and max_completion_tokens are the same here; give one of them")
        for name in ("max_tokens", "max_completion_tokens"):
            limit = getattr(self, name)
            if limit is not None and not 1 <= limit < 2**31:
                raise FieldError(name, f"{name} is {limit}; it must be from 1 to the model's context")
        if self.top_logprobs is not None and not self.logprobs:
            raise FieldError("top_logprobs", "top_logprobs go with logprobs=true")
        if self.tool_choice not in (None, "auto", "none"):
            raise FieldError(
                "tool_choice",
                "tool_choice is auto or none here: what a model calls is its own choice, and cannot be required",
                code="unsupported_parameter",
            )

    @property
    def limit(self) -> int | None:
        """Tokens to sample at most; None: up to the model's context."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    def conversation(self) -> list[Message]:
        """The messages, with the tools that may be called.

        Raises:
            FieldError: one of them cannot be used.
        """
        tools = check_tools(self.tools or [])
        given = [{**one, "role": "system"} if one.get("role") == "developer" else one for one in self.messages]
        try:
            messages = parse_messages(given)
        except InputError as error:
            raise FieldError("messages", str(error)) from error
        for index, message in enumerate(messages):
            if "tools" in message:
                raise FieldError(f"messages.{index}.tools", "tools stand beside the messages, in none of them")
            # A path would be one of this machine's.
            if not isinstance(message["content"], str) and any(part["type"] == "image" for part in message["content"]):
                raise FieldError(f"messages.{index}.content", f"message {index + 1}: images are not taken here")
        return with_tools(messages, tools if self.tool_choice != "none" else [])


@dataclass
class _Choice:
    """One sample as it grows."""

    stream: ResponseStream
    stops: Sequence[str]
    texts: TokenTexts
    is_ended: bool = False
    finish_reason: str = "length"
    scored: list[ScoredToken] = field(default_factory=list)
    """Those that no delta has been given with."""
    num_calls: int = 0
    _cutters: dict[str, StopCutter] = field(default_factory=dict)

    def feed(self, sequence: SampledSequence) -> list[dict[str, Any]]:
        """Take the next tokens; deltas as they are sent."""
        if self.is_ended:
            return []
        tokens = sequence.tokens_T.tolist()
        scored = scored_sample(sequence)
        if sequence.is_stopped and self.texts.is_special(tokens[-1]):
            del scored[-1]
        self.scored += scored
        return self._said(self.stream.feed(tokens))

    def finish(self, *, is_stopped: bool) -> list[dict[str, Any]]:
        """What was held back, after the last token."""
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
            if self._is_cut:
                break
            if "function" in delta:
                said += self._flushed("tool_calls")
                said.append({"tool_calls": [self._call(delta)]})
            elif "error" in delta:  # a call that nobody can read is what it is: text
                said += self._text("content", cast("UnparsedToolCall", delta)["text"])
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
        """What was held of something else, which is over."""
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


class ChatAnswer:
    """The answer to one request, of n choices."""

    def __init__(
        self,
        request: ChatRequest,
        *,
        model: str,
        prompt: ModelInput,
        num_prompt: int,
        renderer: Renderer,
        texts: TokenTexts,
    ) -> None:
        """`model` says which weights answer; `prompt` is what was rendered."""
        self._request = request
        self._texts = texts
        self._num_prompt = num_prompt
        self._num_sampled = 0
        self._num_reused = 0
        self._head = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": model}
        self._choices = [
            _Choice(renderer.stream_response(prompt), request.stops, texts) for _ in range(request.num_samples)
        ]
        self._is_begun = False

    def chunks(self, output: SampleOutput) -> list[dict[str, Any]]:
        """What is sent when the engine has said this."""
        chunks: list[dict[str, Any]] = []
        if not self._is_begun:
            self._is_begun = True
            for index in range(len(self._choices)):
                chunks.append(self._chunk(index, {"role": "assistant", "content": ""}))
        for index, (choice, sequence) in enumerate(zip(self._choices, output.sequences, strict=True)):
            if output.is_partial and len(sequence.tokens_T):
                chunks += self._deltas(index, choice.feed(sequence))
            if (sequence.is_stopped or not output.is_partial) and not choice.is_ended:
                chunks += self._deltas(index, choice.finish(is_stopped=sequence.is_stopped))
                chunks.append(self._chunk(index, {}, finish_reason=choice.finish_reason))
        if not output.is_partial:
            self._count(output)
            if self._request.includes_usage:
                chunks.append({**self._head, "object": "chat.completion.chunk", "choices": [], "usage": self._usage()})
        return chunks

    def whole(self, output: SampleOutput) -> dict[str, Any]:
        """The answer at once."""
        self._count(output)
        choices = []
        for index, (choice, sequence) in enumerate(zip(self._choices, output.sequences, strict=True)):
            said = [*choice.feed(sequence), *choice.finish(is_stopped=sequence.is_stopped)]
            choices.append(
                {
                    "index": index,
                    "message": _message(said),
                    "logprobs": chat_logprobs(choice.scored, self._texts) if self._request.logprobs else None,
                    "finish_reason": choice.finish_reason,
                }
            )
        return {**self._head, "object": "chat.completion", "choices": choices, "usage": self._usage()}

    def _deltas(self, index: int, said: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        return [self._chunk(index, delta) for delta in said]

    def _chunk(self, index: int, delta: dict[str, Any], *, finish_reason: str | None = None) -> dict[str, Any]:
        """A chunk of one choice, with the tokens that no chunk has been sent with."""
        choice = self._choices[index]
        logprobs = None
        if self._request.logprobs and choice.scored:
            logprobs = chat_logprobs(choice.scored, self._texts)
            choice.scored = []
        one = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        chunk = {**self._head, "object": "chat.completion.chunk", "choices": [one]}
        return {**chunk, "usage": None} if self._request.includes_usage else chunk

    def _count(self, output: SampleOutput) -> None:
        self._num_sampled = sum(len(sequence.tokens_T) for sequence in output.sequences)
        self._num_reused = output.num_reused_tokens

    def _usage(self) -> dict[str, Any]:
        return usage(self._num_prompt, self._num_sampled, self._num_reused)


def _message(said: Iterable[dict[str, Any]]) -> dict[str, Any]:
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


def usage(num_prompt: int, num_sampled: int, num_reused: int) -> dict[str, Any]:
    """What an answer took, in tokens."""
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_sampled,
        "total_tokens": num_prompt + num_sampled,
        "prompt_tokens_details": {"cached_tokens": num_reused},
    }
