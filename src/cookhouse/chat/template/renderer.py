"""Any model in its own format: tokens and weights from the chat template that it comes with."""

from collections.abc import Mapping, Sequence
from typing import Any

from cookhouse.chat.call_places import answer
from cookhouse.chat.encoding import Piece, Special, Tokenizer
from cookhouse.chat.messages import Message, Role, split_thinking, text_of, thinking_of, with_thinking
from cookhouse.chat.renderer import MessageLayout, Renderer, Termination
from cookhouse.chat.template.calls import Calls, learn_calls, writes_tools
from cookhouse.chat.template.chat_template import ChatTemplate, Place, common_prefix, unguarded
from cookhouse.chat.template.endings import learn_ending
from cookhouse.chat.template.frames import (
    extends,
    learn_begin,
    learn_result_tail,
    learn_start,
    learn_thinking,
    learn_user_header,
)
from cookhouse.chat.template.sources import has_tool_template
from cookhouse.chat.template.spans import MessageSpan, SpanFinder, TurnFormat
from cookhouse.chat.tool_calls import read_json
from cookhouse.errors import InputError

_SHOWN = 30
"""Characters of a text that a message quotes."""


class TemplateRenderer(Renderer):
    """`template`: what the model's chat template writes, for models whose family has no renderer of its own.

    An answer begins where the prompt for it ends, and that is what the template gives for the messages before it; where
    it knows no prompts, its `{% generation %}` marks or its own header show where. Each answer is checked as it is
    rendered: that it begins with its prompt, and that it can be read back. What the template makes impossible is
    refused with the place. Renders a conversation many times over, so a family's own renderer is faster.

    Deliberate differences from the template: names of marks in content stay plain text; header and content are
    tokenized apart; what stands behind the last end mark is not written; where the template ends the last answer with
    nothing, the mark of the next turn ends it; where a prompt opens a think block that the template leaves out of
    answers, the last answer has it.

    Raises:
        InputError: there is no chat template, or it cannot be understood.
    """

    def __init__(self, tokenizer: Tokenizer, **variables: Any) -> None:
        """`variables` are set in the template, such as `enable_thinking=False`."""
        self._calls: Calls | None
        self._stops: list[str]
        self._learn(tokenizer, variables, declares_tools=False)
        self._with_tools: TemplateRenderer | InputError | None = None
        if has_tool_template(tokenizer):
            self._with_tools = _renderer_with_tools(tokenizer, variables)
        if isinstance(self._with_tools, TemplateRenderer):
            other = self._with_tools
            self.has_tools = other.has_tools
            self.has_extension_property &= other.has_extension_property
            self._calls = self._calls or other._calls
            self._stops = list(dict.fromkeys([*self._stops, *other._stops]))
            self._marks |= other._marks

    def _learn(self, tokenizer: Tokenizer, variables: Mapping[str, Any], *, declares_tools: bool) -> None:
        template = self._template = ChatTemplate(tokenizer, variables, declares_tools=declares_tools)
        super().__init__(tokenizer, more_marks=template.written)
        bos, self._eos = (
            self.encoder.decode([i]) if i is not None else None
            for i in (tokenizer.bos_token_id, tokenizer.eos_token_id)
        )
        self._ending = ending = learn_ending(template, self._eos)
        self._follows = None if ending.follows is None else Special(ending.follows)
        self._start = start = learn_start(template)
        self._thinking = frame = learn_thinking(template, start)
        self._empty = start.empty
        if start.opened and frame is not None:
            self._empty = frame.between(template.guarded(""))
        # A block without reasoning consists of its marks; a channel, which the model has to choose, has a name, and an
        # answer that stands between marks begins with one.
        pieces = template.pieces(self._empty)
        num_marks = sum(isinstance(piece, Special) for piece in pieces)
        is_opening = num_marks == 0 or (num_marks == 1 and bool(ending.closing_marks))
        says_nothing = all(isinstance(piece, Special) or not piece.strip() for piece in pieces)
        self._is_empty_block = says_nothing and not is_opening
        self._writes_calls, self._calls, call_end = learn_calls(template, ending, start)
        self._declares_tools = writes_tools(template)
        self.has_tools = self._declares_tools and self._calls is not None
        self._turns = TurnFormat(
            begin=learn_begin(template, bos),
            ends=ending.ends | frozenset([call_end] if call_end else []),
            user_header=learn_user_header(template),
            result_tail=learn_result_tail(template),
        )
        self._stops = list(dict.fromkeys(filter(None, [ending.last, call_end, ending.follows])))
        self._marks = {i: Special(t) for t, i in self.encoder.added.items() if template.marks(t)}
        self.thinks = self._thinking is not None
        self.has_extension_property = extends(
            template, start, thinks=self.thinks, writes_calls=self._writes_calls, declares_tools=self._declares_tools
        )

    # ------------------------------------------------------------------ the contract

    def begin(self) -> list[int]:
        return self.encoder.encode(self._template.pieces(self._turns.begin))

    def layout(self, messages: Sequence[Message]) -> list[MessageLayout]:
        if (other := self._for_tools(messages)) is not None:
            return other.layout(messages)
        self._check_form(messages)
        text, places = self._written(messages)
        openings = [self._opening(messages, index, text) for index in range(len(messages))]
        layouts = self._layouts(messages, text, places, openings)
        for index, message in enumerate(messages):
            if openings[index] is not None:
                self._check_read_back(message, layouts[index], index, is_last=index == len(messages) - 1)
        return layouts

    def end(self, last: Message) -> list[Piece]:
        return [self._follows] if self._follows is not None and last["role"] == "assistant" else []

    def check_trained(self, message: Message) -> None:
        if split_thinking(message)[0] and self._thinking is None:
            raise InputError(f"{self._template.name} writes no thinking, and a trained message has some; remove it")
        if message.get("unparsed_tool_calls"):
            raise InputError(f"{self._template.name} cannot write a call that could not be read; remove the message")
        if message.get("tool_calls") and self._calls is None:
            raise InputError(
                f"calls as {self._template.name} writes them cannot be read back, so that a model trained on them "
                "could not be used; name a renderer that knows them"
            )

    def layout_prompt(self, messages: Sequence[Message], role: Role) -> list[MessageLayout]:
        if role != "assistant":
            raise InputError(f"{self._template.name} writes prompts for an assistant's answer alone, not for {role}")
        if (other := self._for_tools(messages)) is not None:
            return other.layout_prompt(messages, role)
        self._check_form(messages)
        written = self._template.render(messages, prompt=True)
        text = written + self._start.header
        openings = [self._opening(messages, index, text) for index in range(len(messages))]
        places = self._template.places(messages, written, prompt=True)
        answer: Message = {"role": "assistant", "content": ""}
        return self._layouts([*messages, answer], text, [*places, None], [*openings, len(text)])

    def get_stop_sequences(self) -> list[int]:
        return sorted(self.encoder.id_of(stop) for stop in self._stops)

    def read_opening(self, prompt: Sequence[Piece]) -> Sequence[Piece]:
        frame = self._thinking
        if frame is None or not frame.is_in_prompt or not frame.before:
            return []
        marks = [piece for piece in prompt if isinstance(piece, Special)]
        return marks[-1:] if marks and marks[-1] == frame.before else []

    def read_response(self, pieces: Sequence[Piece]) -> tuple[Message, Termination]:
        text = self._template.spelled(pieces)
        thinking, is_open = "", False
        if self._thinking is not None:
            thinking, text, is_open = self._thinking.read(text, self._template.names)
        if not thinking:
            text = text.removeprefix(self._empty)
        text, termination = self._split_at_end(text)
        message = answer(unguarded(text), (), ()) if self._calls is None else self._calls.read(text)
        message = with_thinking(unguarded(thinking), message)
        return message, Termination.MALFORMED if is_open else termination

    # ------------------------------------------------------------------ how

    def _prompt(self, history: Sequence[Message]) -> str:
        return self._template.render(history, prompt=True) + self._start.header

    def _for_tools(self, messages: Sequence[Message]) -> "TemplateRenderer | None":
        """The renderer of the template for conversations that declare tools, where this is one and that is another."""
        if self._with_tools is None or not any(message.get("tools") for message in messages):
            return None
        if isinstance(self._with_tools, InputError):
            raise InputError(f"the conversation declares tools, and {self._with_tools}") from self._with_tools
        return self._with_tools

    def _written(self, messages: Sequence[Message]) -> tuple[str, list[Place | None]]:
        """Text that the template writes, and the place of each content. The last answer follows its prompt where the
        template, once there is an answer, leaves out what only the last question has, or the think block that the
        prompt opens.
        """
        text = self._template.render(messages)
        places = self._template.places(messages, text)
        if messages[-1]["role"] != "assistant":
            return text, places
        prompt = self._prompt(messages[:-1])
        if text.startswith(prompt):
            return text, places
        said = self._said_behind(prompt, text, messages[-1], places[-1])
        if said is None:
            return text, places
        moved = len(prompt + said) - len(text)
        last = None if places[-1] is None else (places[-1][0] + moved, places[-1][1] + moved)
        return prompt + said, [*self._template.places(messages[:-1], prompt, prompt=True), last]

    def _said_behind(self, prompt: str, text: str, answer: Message, place: Place | None) -> str | None:
        """Text behind the prompt for the last answer of a text that goes on from another; None: not known."""
        if self._start.opened and self._thinking is not None:
            said = self._start.behind(prompt, text)
            thinking = self._template.guarded(split_thinking(answer)[0] or "")
            return None if said is None else self._thinking.between(thinking) + said
        marks = self._template.marks(prompt)
        if place is None or not marks:
            return None
        before, header, begun = text[: place[0]].rpartition(prompt[marks[-1].start() :])
        return text[len(before + header) :] if header and (not begun.strip() or begun == self._empty) else None

    def _opening(self, messages: Sequence[Message], index: int, text: str) -> int | None:
        """End of the prompt for an answer in the text; None where the text is not what the answer was written in.

        Raises `InputError` if that is so for the last message.
        """
        if messages[index]["role"] != "assistant":
            return None
        is_last = index == len(messages) - 1
        try:
            prompt = self._prompt(messages[:index])
        except InputError:
            if is_last:
                raise
            return None
        if text.startswith(prompt):
            return len(prompt)
        if not is_last:
            return None
        same = len(common_prefix(prompt, text))
        raise InputError(
            f"message {index + 1}: {self._template.name} does not go on where the prompt for it ends: the prompt has "
            f"{unguarded(prompt[same : same + _SHOWN])!r} where the conversation has "
            f"{unguarded(text[same : same + _SHOWN])!r}; name a renderer"
        )

    def _layouts(
        self,
        messages: Sequence[Message],
        text: str,
        places: Sequence[Place | None],
        openings: Sequence[int | None],
    ) -> list[MessageLayout]:
        finder = SpanFinder(template=self._template, turns=self._turns, text=text)
        spans = finder.find(messages, places, openings)
        return [self._layout_one(text, span, message) for span, message in zip(spans, messages, strict=True)]

    def _layout_one(self, text: str, span: MessageSpan, message: Message) -> MessageLayout:
        said = span.said
        if message["role"] == "assistant" and split_thinking(message)[0] is None and self._is_empty_block:
            said += len(self._empty) if text.startswith(self._empty, said) else 0
        return MessageLayout(
            header=self._template.pieces(text[span.start : span.said]),
            filler=self._template.pieces(text[span.said : said]),
            output=self._template.pieces(text[said : span.end]),
        )

    def _check_form(self, messages: Sequence[Message]) -> None:
        """Refuse what the template would drop without a word."""
        for index, message in enumerate(messages):
            if message.get("tools") and not self._declares_tools:
                raise InputError(f"{self._template.name} has no form for tools; use a model that was trained with them")
            if message.get("tool_calls") and not self._writes_calls:
                raise InputError(f"message {index + 1}: {self._template.name} has no form for calls")

    def _check_read_back(self, message: Message, layout: MessageLayout, index: int, *, is_last: bool) -> None:
        if message.get("tool_calls") and self._calls is None:
            return  # only shown; `check_trained` refuses to train it
        said = [piece for piece in (*layout.filler, *layout.output) if isinstance(piece, str)]
        read, _ = self.read_response(said)
        thinking, text = split_thinking(message)
        is_same = text_of(read).strip() == text.strip()
        if self._thinking is not None and (is_last or self.has_extension_property):
            is_same &= thinking_of(read).strip() == (thinking or "").strip()
        is_same &= _called(read) == _called(message)
        if not is_same:
            raise InputError(
                f"message {index + 1}: what {self._template.name} writes for it cannot be read back: "
                f"{''.join(said)[:_SHOWN]!r} …; change it, or name a renderer"
            )

    def _split_at_end(self, text: str) -> tuple[str, Termination]:
        found = [(at, end) for end in self._stops if (at := text.find(end)) >= 0]
        at, end = min(found) if found else (len(text), "")
        body = self._ending.without_closing(text[:at])
        early = min((body.find(mark) for mark in self._turns.ends if mark in body), default=None)
        if early is not None:
            return body[:early], Termination.MALFORMED
        if found:
            return body, Termination.STOP_SEQUENCE if at + len(end) == len(text) else Termination.MALFORMED
        if self._eos and body.endswith(self._eos):
            return body.removesuffix(self._eos), Termination.EOS
        return body, Termination.MALFORMED


def _renderer_with_tools(tokenizer: Tokenizer, variables: Mapping[str, Any]) -> TemplateRenderer | InputError:
    """The renderer of the template for conversations that declare tools; where that cannot be understood, why not."""
    made = TemplateRenderer.__new__(TemplateRenderer)
    try:
        made._learn(tokenizer, variables, declares_tools=True)
    except InputError as error:
        return error
    made._with_tools = None
    return made


def _called(message: Message) -> list[tuple[str, Any]]:
    """Names and arguments, those given as JSON text as the object that it is."""
    called = [call["function"] for call in message.get("tool_calls", ())]
    return [(each["name"], _object(each["arguments"])) for each in called]


def _object(arguments: Any) -> Any:
    try:
        return read_json(arguments) if isinstance(arguments, str) else arguments
    except InputError:
        return arguments
