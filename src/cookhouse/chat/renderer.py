"""The renderer contract, and everything about it that does not depend on the model family."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import ClassVar, TypeAlias

from tinker import EncodedTextChunk, ModelInput
from tinker.types import ImageChunk

from cookhouse.chat.encoding import Encoder, Piece, Special, Token, Tokenizer, has_images, to_model_input
from cookhouse.chat.messages import Message, Role, check_tool_results, parse_messages
from cookhouse.chat.streaming import UNFINISHED, ResponseStream
from cookhouse.chat.training_targets import TrainOnWhat, trained_messages

SupervisedExample: TypeAlias = tuple[ModelInput, list[float]]
"""Tokens of a conversation, and one weight (0 or 1) for each of them, not shifted; those of an image weigh nothing."""


class Termination(StrEnum):
    """End of a sampled response."""

    STOP_SEQUENCE = "stop_sequence"
    """Exactly one end mark of the family, at the end."""
    EOS = "eos"
    """The model's end-of-text token instead of the family's end mark."""
    MALFORMED = "malformed"
    """No end at all (cut by `max_tokens`), an end mark in the middle, or thinking that never closes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLayout:
    """Pieces that a family writes for one message.

    Its parts are tokenized apart, so that a response sampled after the header has the tokens it is trained with.
    """

    header: Sequence[Piece]
    """All that stands in the generation prompt when this message is to be written."""
    output: Sequence[Piece | ImageChunk]
    """All that the model is to write, its end mark included."""
    filler: Sequence[Piece] = ()
    """Stands between the two where the format asks for it and the message does not: the empty think block of an answer
    that says nothing of thinking. It has the weight of the header, so that data without thinking does not teach the
    model to stop thinking.
    """


class Renderer(ABC):
    """Turns messages into tokens and tokens into messages, as one model family does.

    A family overrides `marks`, `layout`, `get_stop_sequences` and `read_response`, and where it applies `begin`, `end`,
    `check_trained`, `read_opening`, `settle` and `has_extension_property`. It writes its marks as `Special`, and names
    each in one of these; all other text is encoded as plain text, so that nothing in a message's content can become a
    mark. It reads a response as
    marks and texts too, whether that is there as a whole or on its way. A renderer holds no state between calls.
    """

    marks: ClassVar[Sequence[Special]] = ()
    """What has a meaning in a response; any other special token is read as its text."""
    optional_marks: ClassVar[Sequence[Special]] = ()
    """More of these, which some tokenizers of the family lack."""
    written_marks: ClassVar[Sequence[Special]] = ()
    """Special tokens that are only ever written."""
    optional_written_marks: ClassVar[Sequence[Special]] = ()
    """More of these, which some tokenizers of the family lack."""
    template_edits: ClassVar[Sequence[tuple[str, str]]] = ()
    """Patterns, each with what is put in its place, that make what this renderer writes and what its models' chat
    template writes the same, where they differ on purpose.
    """
    template_may_lack_tools: ClassVar[bool] = False
    """Whether models of the family are published with a chat template that leaves tools to the caller."""

    has_extension_property: bool = True
    """Whether the prompt of each turn starts with the whole sequence of the turn before."""
    thinks: bool = False
    """Whether a response may open with reasoning, which takes many tokens and is no part of the answer."""
    has_tools: bool = True
    """Whether the format has a form for tools: that they are declared, called, and give results."""

    def __init__(self, tokenizer: Tokenizer, *, more_marks: Collection[str] = ()) -> None:
        """`more_marks` are tokens that this renderer writes besides those of its class. Raises `InputError` if the
        tokenizer lacks a special token of the family.
        """
        written = (*self.marks, *self.optional_marks, *self.written_marks, *self.optional_written_marks, *more_marks)
        self.encoder = Encoder(tokenizer, written)
        for mark in self.written_marks:
            self.encoder.id_of(mark)
        marks = [*self.marks, *filter(self.encoder.has, self.optional_marks)]
        self._marks = {self.encoder.id_of(mark): mark for mark in marks}

    # ------------------------------------------------------------------ for families to say

    @abstractmethod
    def layout(self, messages: Sequence[Message]) -> list[MessageLayout]:
        """One layout for each message. The header of the last may depend on its role only, not on its content."""

    @abstractmethod
    def get_stop_sequences(self) -> list[str] | list[int]:
        """Ends of a response: strings, or token ids."""

    @abstractmethod
    def read_response(self, pieces: Sequence[Piece]) -> tuple[Message, Termination]:
        """The assistant message that the marks and texts of a response spell, and how it ended.

        As a response grows, so do its thinking, its text and its calls: what one reading gives, white space at the ends
        excepted, the reading of more pieces or longer text gives too.
        """

    def read_opening(self, prompt: Sequence[Piece]) -> Sequence[Piece]:  # noqa: ARG002
        """Pieces that a prompt leaves open for a reply: a think mark, to be read as if the response began with it."""
        return []

    def settle(self, text: str) -> str:
        """The beginning of a growing text that no further token takes back: all but the first letters of a stop string,
        and white space and half a character at the end.
        """
        for stop in self.get_stop_sequences():
            if isinstance(stop, str):
                length = next(n for n in range(len(stop), -1, -1) if text.endswith(stop[:n]))
                text = text[: len(text) - length]
        return text.rstrip().rstrip(UNFINISHED).rstrip()

    def layout_prompt(self, messages: Sequence[Message], role: Role) -> list[MessageLayout]:
        """The layouts of messages, and of one by `role` of which only the header is to be written."""
        return self.layout([*messages, {"role": role, "content": ""}])

    def begin(self) -> list[int]:
        """Tokens before the first message, never trained."""
        return []

    def end(self, last: Message) -> list[Piece]:  # noqa: ARG002
        """Pieces after a message that is the last of a supervised example, trained if the message is. Where the next
        message begins with it, it is trained there too: a stop string that is the next speaker's name, say.
        """
        return []

    def check_trained(self, message: Message) -> None:  # noqa: B027
        """Raise `InputError` if the family cannot write all of a message that is trained."""

    # ------------------------------------------------------------------ the mechanism

    def build_supervised_example(self, messages: Sequence[Message], train_on_what: TrainOnWhat) -> SupervisedExample:
        """The whole conversation as one sequence, rendered as history is: without the extension property, earlier turns
        may lack what the model wrote. `build_supervised_examples` never trains on such a turn.

        Raises:
            InputError: a message is not one, or does not go with `train_on_what`, or cannot be written by this family.
        """
        messages = _checked(messages)
        rendered = self._render(messages)
        return rendered.example(self._targets(messages, train_on_what))

    def build_supervised_examples(
        self, messages: Sequence[Message], train_on_what: TrainOnWhat
    ) -> list[SupervisedExample]:
        """Examples in which every trained assistant message follows exactly the prompt it would be sampled from.

        With the extension property that is one example. Without it, it is one for each assistant turn, or fewer where a
        turn's sequence happens to extend the one before; each message is trained in one of them. Errors as above.
        """
        messages = _checked(messages)
        targets = self._targets(messages, train_on_what)
        if self.has_extension_property:
            return [self._render(messages).example(targets)]
        ends = [i for i, m in enumerate(messages) if m["role"] == "assistant" and targets.trained[i]]
        tail = ends[-1] + 1 if ends else 0
        if not ends or any(targets.trained[tail:]):
            ends.append(len(messages) - 1)
        sequences = [self._render(messages[: end + 1]) for end in ends]
        examples = []
        start = 0
        for index, (end, sequence) in enumerate(zip(ends, sequences, strict=True)):
            if index + 1 < len(ends) and sequences[index + 1].extends(sequence):
                continue  # trained as part of the longer one
            examples.append(sequence.example(targets.within(start, end + 1)))
            start = end + 1
        return examples

    def build_generation_prompt(
        self, messages: Sequence[Message], role: Role = "assistant", prefill: str | None = None
    ) -> ModelInput:
        """History, the header of the message to be written, and its first words if given.

        `prefill` is the program's own text: the name of a special token in it becomes that token.
        """
        history = _checked(messages) if messages else []
        layouts = self.layout_prompt(history, role)
        tokens: list[Token] = [*self.begin()]
        for layout in layouts[:-1]:
            tokens += [*self._encode_framing(layout), *self.encoder.encode(layout.output)]
        tokens += self.encoder.encode(layouts[-1].header)
        if prefill:
            tokens += self.encoder.encode_with_specials(prefill)
        return to_model_input(tokens)

    def parse_response(self, tokens: Sequence[int]) -> tuple[Message, Termination]:
        """The assistant message that sampled tokens spell, and how it ended. A prefill is not part of it."""
        return self.read_response(self.encoder.split(tokens, self._marks))

    def stream_response(self, prompt: ModelInput | None = None) -> ResponseStream:
        """Reads a response as it is sampled; after any tokens its message is what `parse_response` makes of them.

        Given the prompt, a think mark at its end counts as the response's own, so that thinking is recognized at once.
        """
        return ResponseStream(
            self.encoder,
            self._marks,
            read=lambda pieces: self.read_response(pieces)[0],
            settle=self.settle,
            opening=() if prompt is None else self.opening_of(prompt),
        )

    def opening_of(self, prompt: ModelInput) -> Sequence[Piece]:
        """Pieces that a prompt leaves open for its reply."""
        if not prompt.chunks or not isinstance(prompt.chunks[-1], EncodedTextChunk):
            return ()
        return self.read_opening(self.encoder.split(prompt.chunks[-1].tokens, self._marks))

    @property
    def mark_ids(self) -> Collection[int]:
        """Tokens that have a meaning in a response."""
        return self._marks.keys()

    def build_response(self, messages: Sequence[Message]) -> list[int]:
        """Tokens that a model would sample for the last message after the others, its end included; `parse_response`
        reads it as any sampled response.

        Raises:
            InputError: a message is not one, or the family cannot write all of the last.
        """
        messages = _checked(messages)
        self.check_trained(messages[-1])
        return self._response(messages)

    def read_back(self, messages: Sequence[Message]) -> Message:
        """The last message as it is read where a model says it after the others: its reasoning apart from its text,
        where the format has reasoning. One that no response can be stays as it is.

        What answers are compared with goes through here, since they are parsed themselves. Raises `InputError` if a
        message is not one, or cannot be written by this family.
        """
        messages = _checked(messages)
        message, termination = self.parse_response(self._response(messages))
        return messages[-1] if termination is Termination.MALFORMED else message

    def _response(self, messages: Sequence[Message]) -> list[int]:
        last = self.layout(messages)[-1]
        encode = self.encoder.encode
        written = [*encode(last.filler), *encode(last.output), *encode(self.end(messages[-1]))]
        return [token for token in written if isinstance(token, int)]

    def _targets(self, messages: Sequence[Message], train_on_what: TrainOnWhat) -> "_Targets":
        trained = trained_messages(messages, train_on_what)
        for message, is_trained in zip(messages, trained, strict=True):
            if is_trained:
                self.check_trained(message)
        return _Targets(trained=trained, framing=train_on_what == TrainOnWhat.ALL_TOKENS)

    def _render(self, messages: Sequence[Message]) -> "_Rendered":
        encode = self.encoder.encode
        layouts = self.layout(messages)
        return _Rendered(
            begin=self.begin(),
            framings=[self._encode_framing(layout) for layout in layouts],
            outputs=[encode(layout.output) for layout in layouts],
            ends=[encode(self.end(message)) for message in messages],
        )

    def _encode_framing(self, layout: MessageLayout) -> list[int]:
        return self.encoder.encode(layout.header) + self.encoder.encode(layout.filler)


def _checked(messages: Sequence[Message]) -> list[Message]:
    parsed = parse_messages(messages)
    check_tool_results(parsed)
    return parsed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Targets:
    trained: Sequence[bool]
    framing: bool
    """Whether the header and the filler of a trained message are trained too."""

    def within(self, start: int, stop: int) -> "_Targets":
        trained = [is_trained and start <= i < stop for i, is_trained in enumerate(self.trained)]
        return _Targets(trained=trained, framing=self.framing)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rendered:
    begin: Sequence[int]
    framings: Sequence[Sequence[int]]
    """Header and filler of each message."""
    outputs: Sequence[Sequence[Token]]
    ends: Sequence[Sequence[int]]
    """What follows each message where it is the last."""

    def extends(self, shorter: "_Rendered") -> bool:
        num = len(shorter.framings)
        if shorter.ends[-1]:  # written after the shorter one only, and perhaps trained there
            return False
        return self.framings[:num] == shorter.framings and self.outputs[:num] == shorter.outputs

    def example(self, targets: _Targets) -> SupervisedExample:
        tokens: list[Token] = list(self.begin)
        weights = [0.0] * len(tokens)
        stop: Sequence[int] = ()  # what a trained message before is to end with, in the framing of the next
        for framing, output, end, is_trained in zip(
            self.framings, self.outputs, self.ends, targets.trained, strict=False
        ):
            tokens += framing
            num_stop = len(stop) if framing[: len(stop)] == stop else 0
            weights += [1.0] * num_stop
            weights += [float(is_trained and targets.framing)] * (len(framing) - num_stop)
            tokens += output
            weights += _weigh(output, float(is_trained))
            stop = end if is_trained else ()
        tokens += self.ends[-1]
        weights += [float(targets.trained[len(self.framings) - 1])] * len(self.ends[-1])
        return to_model_input(tokens), weights


def _weigh(tokens: Sequence[Token], weight: float) -> list[float]:
    """A weight for each token; no model says an image, so its tokens weigh nothing."""
    if not has_images(tokens):
        return [weight] * len(tokens)
    return list(chain.from_iterable([weight] if isinstance(t, int) else [0.0] * t.length for t in tokens))


def split_at_end(
    pieces: Sequence[Piece], ends: Collection[Special], eos: Special | None = None
) -> tuple[list[Piece], Termination]:
    """The pieces before the first end mark (or before a final `eos`, if there is none), and how they ended."""
    body = list(pieces)
    position = next((i for i, piece in enumerate(body) if isinstance(piece, Special) and piece in ends), None)
    if position is not None:
        is_clean = position == len(body) - 1
        return body[:position], Termination.STOP_SEQUENCE if is_clean else Termination.MALFORMED
    if eos is not None and body and is_mark(body[-1], eos):
        return body[:-1], Termination.EOS
    return body, Termination.MALFORMED


def split_at(pieces: Sequence[Piece], mark: Special) -> tuple[list[Piece], list[Piece], bool]:
    """The pieces before and after the first of a mark, and whether there is one; if not, all are before."""
    position = next((i for i, piece in enumerate(pieces) if is_mark(piece, mark)), None)
    if position is None:
        return list(pieces), [], False
    return list(pieces[:position]), list(pieces[position + 1 :]), True


def split_thinking_block(
    pieces: Sequence[Piece], opening: Special, closing: Special
) -> tuple[str | None, list[Piece], bool]:
    """Thinking, the pieces after it, and whether it is closed. Thinking is what stands before the closing mark, whether
    the opening one is there or in the prompt; None: there is neither.
    """
    is_opened = bool(pieces) and is_mark(pieces[0], opening)
    before, after, is_closed = split_at(pieces, closing)
    if not is_opened and not is_closed:
        return None, list(pieces), True
    return spell(before[1:] if is_opened else before), after, is_closed


def ends_open(prompt: Sequence[Piece], opening: Special) -> bool:
    """True if the last mark of a prompt is an opening one, so that its response begins inside."""
    marks = [piece for piece in prompt if isinstance(piece, Special)]
    return bool(marks) and marks[-1] == opening


def is_mark(piece: Piece, mark: Special) -> bool:
    """True if a piece is that mark, and not text that spells it."""
    return isinstance(piece, Special) and piece == mark


def spell(pieces: Sequence[Piece]) -> str:
    """The text of pieces, marks spelled out."""
    return "".join(pieces)


RendererFactory: TypeAlias = Callable[[Tokenizer], Renderer]
