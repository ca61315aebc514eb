"""gpt-oss: the Harmony format, where an assistant says each thing on a channel of its own.

The chat template and `openai-harmony` do not agree with each other. Where they agree, so do we, token by token. Where
they do not:

- The developer message ends with a blank line, as in the template; `openai-harmony` writes none.
- A call is written as models write it, and as `openai-harmony` does with content type `<|constrain|>json`; the template
  writes `json` without the mark. Text next to a call is a preamble on the commentary channel; the template takes it for
  analysis, and refuses it next to thinking.
- A tool's result is written as it stands; the template writes it as a JSON string, with quotes.
- Tools are declared as `openai-harmony` does; the template puts a comma behind a default, writes objects within objects
  in one line, and leaves out titles and examples.
- Analysis is kept since the last final answer before the message to be written, so that an answer is trained after the
  prompt it would be sampled from. Rendering a finished turn, both leave out the analysis of its calls, which was in the
  prompt of the answer; `openai-harmony` keeps that of turns between the first and the last.

And different from both:

- The system message names a fixed day (`CURRENT_DATE`), and not today; a renderer of one's own may give another.
- Special tokens' names in content stay plain text, and nothing in an answer is refused for looking like a channel.
- A system message that is not the first is a developer message too, and an empty one without tools is left out.
- All calls of a message in history are written. Training one with several is refused: sampling ends after the first.
- Without the system message (`gpt_oss_no_sysprompt`) nothing says that calls go to the commentary channel.
"""

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from cookhouse.chat.call_places import answer
from cookhouse.chat.dates import CURRENT_DATE
from cookhouse.chat.encoding import Piece, Special, Tokenizer
from cookhouse.chat.messages import Message, ToolCall, UnparsedToolCall, split_thinking, text_of, with_thinking
from cookhouse.chat.renderer import MessageLayout, Renderer, Termination, is_mark, spell, split_at
from cookhouse.chat.tool_calls import read_call, write_arguments
from cookhouse.chat.typescript import write_namespace
from cookhouse.errors import InputError, UnknownNameError

_START, _CHANNEL, _MESSAGE = Special("<|start|>"), Special("<|channel|>"), Special("<|message|>")
_END, _CALL, _RETURN = Special("<|end|>"), Special("<|call|>"), Special("<|return|>")
_CONSTRAIN, _END_OF_TEXT = Special("<|constrain|>"), Special("<|endoftext|>")
_ENDS = (_END, _CALL, _RETURN, _END_OF_TEXT)
_STOPS = (_CALL, _RETURN, _END_OF_TEXT)
_FUNCTIONS = "functions."
_RECIPIENT = re.compile(r"to=(\S+)")

EFFORTS = ("low", "medium", "high")


class GptOssRenderer(Renderer):
    """`gpt_oss_no_sysprompt`; with an effort `gpt_oss_{effort}_reasoning`, which open with the usual system message.

    The analysis of an earlier turn is left out, and an answer ends with `<|return|>` where nothing follows and with
    `<|end|>` in history, so there is no extension property.
    """

    has_extension_property = False
    thinks = True
    marks: ClassVar[Sequence[Special]] = (_START, _CHANNEL, _MESSAGE, _CONSTRAIN, *_ENDS)
    template_edits: ClassVar[Sequence[tuple[str, str]]] = (
        (r"<\|start\|>system<\|message\|>.*?<\|end\|>", ""),
        (r"<\|channel\|>commentary json<", "<|channel|>commentary <|constrain|>json<"),
        (r'( to=assistant<\|channel\|>commentary<\|message\|>)"([^"]*)"', r"\1\2"),
    )

    def __init__(
        self, tokenizer: Tokenizer, *, reasoning_effort: str | None = None, current_date: str | None = None
    ) -> None:
        """`current_date` is as `2025-08-05`; None: `CURRENT_DATE`, which does not change from day to day.

        Raises:
            UnknownNameError: no such effort.
            InputError: a date in another form, or the tokenizer lacks a mark.
        """
        super().__init__(tokenizer)
        if reasoning_effort is not None and reasoning_effort not in EFFORTS:
            raise UnknownNameError("reasoning effort", reasoning_effort, EFFORTS)
        self._effort = reasoning_effort
        self._date = CURRENT_DATE if current_date is None else _parse_date(current_date)

    def layout(self, messages: Sequence[Message]) -> list[MessageLayout]:
        answered = _last_answer(messages[:-1])
        first, *rest = [self._layout_one(messages, index, answered) for index in range(len(messages))]
        return [MessageLayout(header=[*self._system(messages[0]), *first.header], output=first.output), *rest]

    def check_trained(self, message: Message) -> None:
        if len(message.get("tool_calls", ())) + len(message.get("unparsed_tool_calls", ())) > 1:
            raise InputError(
                "a trained message has several tool calls, and gpt-oss makes one at a time: sampling ends after the "
                "first; give each call a message of its own, followed by its result"
            )

    def get_stop_sequences(self) -> list[int]:
        return [self.encoder.id_of(_RETURN), self.encoder.id_of(_CALL)]

    def read_response(self, pieces: Sequence[Piece]) -> tuple[Message, Termination]:
        segments = _read_segments(pieces)
        thinking = "\n".join(s.body for s in segments if s.recipient is None and s.channel == "analysis" and s.body)
        text = "\n".join(s.body for s in segments if s.recipient is None and s.channel != "analysis" and s.body)
        calls: list[ToolCall] = []
        unparsed: list[UnparsedToolCall] = []
        for segment in segments:
            if segment.recipient is not None:
                try:
                    calls.append(_read_call(segment))
                except InputError as error:
                    unparsed.append({"text": segment.written, "error": str(error)})
        return with_thinking(thinking, answer(text, calls, unparsed)), _termination(segments)

    def read_opening(self, prompt: Sequence[Piece]) -> Sequence[Piece]:
        """The header that a prefill has begun, if any."""
        starts = [i for i, piece in enumerate(prompt) if is_mark(piece, _START)]
        opened = prompt[starts[-1] + 2 :] if starts else []  # after the role
        before, _, has_body = split_at(opened, _MESSAGE)
        return [*before, _MESSAGE] if has_body else opened

    def _system(self, first: Message) -> list[Piece]:
        if self._effort is None:
            return []
        text = (
            "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n"
            f"Current date: {self._date.isoformat()}\n\nReasoning: {self._effort}\n\n"
            "# Valid channels: analysis, commentary, final. Channel must be included for every message."
        )
        if first.get("tools"):
            text += "\nCalls to these tools must go to the commentary channel: 'functions'."
        return [_START, "system", _MESSAGE, text, _END]

    def _layout_one(self, messages: Sequence[Message], index: int, answered: int) -> MessageLayout:
        message = messages[index]
        is_last = index == len(messages) - 1
        if message["role"] == "tool":
            header: list[Piece] = [_START, f"{_FUNCTIONS}{_name_of_tool(messages, index)} to=assistant"]
            return MessageLayout(header=header, output=[_CHANNEL, "commentary", _MESSAGE, text_of(message), _END])
        if message["role"] == "system":
            instructions = _write_instructions(message)
            if not instructions and not is_last:
                return MessageLayout(header=[], output=[])
            return MessageLayout(header=[_START, "developer"], output=[_MESSAGE, instructions, _END])
        if message["role"] == "user":
            return MessageLayout(header=[_START, "user"], output=[_MESSAGE, text_of(message), _END])
        output = _write_assistant(message, keeps_analysis=index > answered, is_last=is_last)
        return MessageLayout(header=[_START, "assistant"], output=output)


def low_reasoning(tokenizer: Tokenizer) -> GptOssRenderer:
    """`gpt_oss_low_reasoning`."""
    return GptOssRenderer(tokenizer, reasoning_effort="low")


def medium_reasoning(tokenizer: Tokenizer) -> GptOssRenderer:
    """`gpt_oss_medium_reasoning`: what the template takes where no effort is given."""
    return GptOssRenderer(tokenizer, reasoning_effort="medium")


def high_reasoning(tokenizer: Tokenizer) -> GptOssRenderer:
    """`gpt_oss_high_reasoning`."""
    return GptOssRenderer(tokenizer, reasoning_effort="high")


def _parse_date(date: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(date)
    except ValueError as error:
        raise InputError(f"current_date is {date!r}; it must be a day as 2025-06-28") from error


def _last_answer(history: Sequence[Message]) -> int:
    """Index of the last final answer, whose turn is over; -1 if there is none."""
    return max((i for i, m in enumerate(history) if m["role"] == "assistant" and not _has_calls(m)), default=-1)


def _has_calls(message: Message) -> bool:
    return bool(message.get("tool_calls") or message.get("unparsed_tool_calls"))


def _name_of_tool(messages: Sequence[Message], index: int) -> str:
    """Whose result a message is: it says so, or names its call, or it is the nth after a message with calls."""
    message = messages[index]
    asked = max(i for i in range(index) if messages[i]["role"] != "tool")  # there is one, as is checked before
    calls = messages[asked].get("tool_calls", [])
    named = [call for call in calls if "id" in call and call["id"] == message.get("tool_call_id")]
    if "name" in message:
        name = message["name"]
    elif named or index - asked <= len(calls):
        name = (named or calls[index - asked - 1 :])[0]["function"]["name"]
    else:
        raise InputError(f"message {index + 1} is the result of a tool that no call before it names; give it a name")
    return name.removeprefix(_FUNCTIONS)


def _write_instructions(message: Message) -> str:
    text = text_of(message)
    instructions = f"# Instructions\n\n{text}\n\n" if text else ""
    tools = message.get("tools")
    return f"{instructions}# Tools\n\n{write_namespace('functions', tools)}" if tools else instructions


def _write_assistant(message: Message, *, keeps_analysis: bool, is_last: bool) -> list[Piece]:
    thinking, text = split_thinking(message)
    pieces: list[Piece] = []
    if thinking and keeps_analysis:
        pieces += [_CHANNEL, "analysis", _MESSAGE, thinking, _END, _START, "assistant"]
    if not _has_calls(message):
        return [*pieces, _CHANNEL, "final", _MESSAGE, text, _RETURN if is_last else _END]
    if text:
        pieces += [_CHANNEL, "commentary", _MESSAGE, text, _END, _START, "assistant"]
    written = [
        *map(_write_call, message.get("tool_calls", ())),
        *map(_spell_again, message.get("unparsed_tool_calls", ())),
    ]
    for index, (recipient, body) in enumerate(written):
        pieces += [_START, "assistant"] if index else []
        pieces += [f" to={recipient}", _CHANNEL, "commentary ", _CONSTRAIN, "json", _MESSAGE, body, _CALL]
    return pieces


def _write_call(call: ToolCall) -> tuple[str, str]:
    function = call["function"]
    return _FUNCTIONS + function["name"].removeprefix(_FUNCTIONS), write_arguments(function["arguments"])


def _spell_again(call: UnparsedToolCall) -> tuple[str, str]:
    header, _, body = call["text"].removesuffix(_CALL).rpartition(_MESSAGE)
    recipient = _RECIPIENT.search(header)
    return recipient[1].partition("<|")[0] if recipient else _FUNCTIONS.rstrip("."), body


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segment:
    """Part between `<|start|>` and an end mark in a response."""

    recipient: str | None
    channel: str | None
    body: str
    end: Special | None
    """None: the response ends first, or another segment starts."""
    is_last: bool
    written: str
    """All of it, spelled out; an end mark that is no call's is left out."""


def _read_segments(pieces: Sequence[Piece]) -> list[_Segment]:
    """All up to the first mark that ends a response."""
    segments: list[_Segment] = []
    rest = list(pieces)
    while rest:
        stop = next(
            (i for i, piece in enumerate(rest) if isinstance(piece, Special) and piece in (*_ENDS, _START)), None
        )
        segment, end = (rest, None) if stop is None else (rest[:stop], rest[stop])
        rest = [] if stop is None else rest[stop + 1 :]
        if end == _START and rest and rest[0] == "assistant":
            rest = rest[1:]
        elif end == _START and rest and not isinstance(rest[0], Special):
            rest[0] = rest[0].removeprefix("assistant")
        if segment or end not in (None, _START):
            mark = Special(end) if end is not None and end != _START else None
            segments.append(_read_segment(segment, mark, is_last=not rest))
            if mark in _STOPS:
                break
    return segments


def _read_segment(pieces: Sequence[Piece], end: Special | None, *, is_last: bool) -> _Segment:
    header, body, has_body = split_at(pieces, _MESSAGE)
    before, after, has_channel = split_at(header, _CHANNEL)
    recipient = _RECIPIENT.search(f"{spell(before)} {spell(after)}".replace(_CONSTRAIN, " "))
    channel = re.match(r"\w+", spell(after)) if has_channel else None
    if not has_body and not has_channel and not _opens_header(spell(before)):
        return _Segment(
            recipient=None, channel=None, body=spell(before), end=end, is_last=is_last, written=spell(pieces)
        )
    return _Segment(
        recipient=recipient[1] if recipient else None,
        channel=channel[0] if channel else None,
        body=spell(body),
        end=end,
        is_last=is_last,
        written=spell([*pieces, _CALL] if end == _CALL else pieces),
    )


def _opens_header(text: str) -> bool:
    """True if text before any mark is the recipient of a call, or may become one; else it is text without a header."""
    return text.startswith(" to=") or " to=".startswith(text)


def _read_call(segment: _Segment) -> ToolCall:
    if segment.end != _CALL:
        raise InputError("the call is not closed by <|call|>")
    assert segment.recipient is not None
    if not segment.recipient.startswith(_FUNCTIONS):
        raise InputError(f"the call is to {segment.recipient!r}, which is no function")
    return read_call(segment.recipient.removeprefix(_FUNCTIONS), segment.body)


def _termination(segments: Sequence[_Segment]) -> Termination:
    """Clean is one answer that returns or one call that calls, at the very end."""
    if not segments or not segments[-1].is_last:
        return Termination.MALFORMED
    last = segments[-1]
    if last.end == _END_OF_TEXT:
        return Termination.EOS
    is_call = last.recipient is not None
    is_answer = not is_call and last.channel != "analysis"
    is_clean = (is_call and last.end == _CALL) or (is_answer and last.end == _RETURN)
    return Termination.STOP_SEQUENCE if is_clean else Termination.MALFORMED
