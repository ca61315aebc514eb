"""A response read while it is sampled."""

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import TypeAlias, cast

from cookhouse.chat.call_places import calls_in_order
from cookhouse.chat.encoding import Encoder, Piece, Special
from cookhouse.chat.messages import Message, TextPart, ThinkingPart, ToolCall, UnparsedToolCall, text_of, thinking_of

Delta: TypeAlias = TextPart | ThinkingPart | ToolCall | UnparsedToolCall
"""What a response says next: more of its text or its thinking, or a call that is complete."""

_MORE = "x"
"""Text that an answer may go on with."""
UNFINISHED = "\ufffd"
"""What decoding writes for the first bytes of a character."""


class ResponseStream:
    """Reads a response as its tokens come.

    After any number of tokens `message` is what the renderer reads of just these, so that a response means the same
    however it arrives. Deltas are never taken back: what an end of the response might still remove (white space, the
    first letters of a stop string, half a character) is held until it is decided. All text deltas together are the
    text of the final message, and so for thinking and calls, which have no `place`: they come where they were written.

    One exception: where a mark shows only later that what came before was thinking, that has been given as text. It
    does not happen where the stream knows the prompt that the response was sampled from.
    """

    def __init__(
        self,
        encoder: Encoder,
        marks: Mapping[int, Special],
        *,
        read: Callable[[Sequence[Piece]], Message],
        settle: Callable[[str], str],
        opening: Sequence[Piece] = (),
    ) -> None:
        """`settle` gives the beginning of a growing text that cannot be taken back; `opening` are pieces that stand
        before the response, such as a think mark that its prompt ends with.
        """
        self._encoder = encoder
        self._marks = marks
        self._read = read
        self._settle = settle
        self._pieces: list[Piece] = list(opening)
        self._growing = GrowingText(encoder)
        self._thinking = self._text = ""  # as given in deltas
        self._num_calls = self._num_unparsed = 0

    @property
    def pieces(self) -> list[Piece]:
        """The marks and texts so far."""
        text = self._growing.text
        return [*self._pieces, text] if text else list(self._pieces)

    @property
    def message(self) -> Message:
        """The message so far."""
        return self._read(self.pieces)

    def feed(self, tokens: Sequence[int]) -> list[Delta]:
        """Take the next tokens; what is certain now."""
        for token in tokens:
            if token in self._marks:
                self._pieces = [*self.pieces, self._marks[token]]
                self._growing = GrowingText(self._encoder)
            else:
                self._growing.add(token)
        return self._deltas(is_over=False)

    def finish(self) -> list[Delta]:
        """Take what was held back; to be called once, after the last token."""
        return self._deltas(is_over=True)

    def _deltas(self, *, is_over: bool) -> list[Delta]:
        message = self.message
        thinking, text, calls = thinking_of(message), text_of(message), message.get("tool_calls", [])
        if not text.startswith(self._text):  # it was thinking, as a mark shows only now
            self._thinking, self._text = thinking, ""
        deltas: list[Delta] = []
        is_thought = is_over or bool(text or calls)
        if said := (thinking if is_thought else self._settle(thinking))[len(self._thinking) :]:
            self._thinking += said
            deltas.append({"type": "thinking", "thinking": said})
        unparsed = message.get("unparsed_tool_calls", [])
        settled = unparsed if is_over else self._settled(unparsed)
        new = {id(call) for call in (*calls[self._num_calls :], *settled[self._num_unparsed :])}
        certain = text if is_over else self._settle(text)
        for letters, call in calls_in_order(message):
            if id(call) in new:
                deltas += self._more_text(certain if letters is None else text[:letters])
                deltas.append(cast("Delta", {key: value for key, value in call.items() if key != "place"}))
        self._num_calls, self._num_unparsed = len(calls), len(settled)
        return [*deltas, *self._more_text(certain)]

    def _more_text(self, text: str) -> list[TextPart]:
        said = text[len(self._text) :]
        self._text += said
        return [{"type": "text", "text": said}] if said else []

    def _settled(self, unparsed: Sequence[UnparsedToolCall]) -> Sequence[UnparsedToolCall]:
        """Unreadable calls that no later text changes."""
        if len(unparsed) == self._num_unparsed:
            return unparsed
        later = self._read([*self.pieces, _MORE]).get("unparsed_tool_calls", [])
        are_same = (one["text"] == other["text"] for one, other in zip(unparsed, later, strict=False))
        return unparsed[: sum(takewhile(bool, are_same))]


class GrowingText:
    """The text of tokens that come one at a time, each decoded a few times however many there are."""

    def __init__(self, encoder: Encoder, before: Sequence[int] = ()) -> None:
        """`before` are tokens whose text goes on."""
        self._encoder = encoder
        self._settled = ""
        self._context = [*before[-1:]]  # the last settled token: some tokenizers drop the space of the first
        self._tokens: list[int] = []
        self.text = ""

    def add(self, token: int) -> None:
        self._tokens.append(token)
        before = self._encoder.decode(self._context) if self._context else ""
        self.text = self._settled + self._encoder.decode([*self._context, *self._tokens])[len(before) :]
        if not self.text.endswith(UNFINISHED):
            self._settled, self._context, self._tokens = self.text, [token], []
