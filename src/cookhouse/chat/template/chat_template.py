"""A model's chat template, run so that its own marks can be distinguished from text that spells them.

In what the template gets, the name of every mark is broken by a guard character; so whatever has such a name in what it
gives was written by the template. The guards are taken out again before anything is encoded. Templates come
from strangers: `transformers` runs them in Jinja's sandbox.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from cookhouse.chat.encoding import Piece, Special, Tokenizer, is_a_name, special_names
from cookhouse.chat.messages import Message, ToolCall, split_thinking, text_of
from cookhouse.chat.template.given import CallForm, read_arguments, shorten_ids
from cookhouse.chat.template.sources import template_source
from cookhouse.errors import InputError

Place: TypeAlias = tuple[int, int]
"""Where a text begins and ends in a longer one."""

_ROLES_BY_LIKELIHOOD = ("assistant", "system", "tool", "user")
"""Those of which templates treat empty content in a way of its own first."""

# Noncharacters, which Unicode keeps for use inside a program (https://www.unicode.org/faq/private_use.html).
_GUARD = "\ufdd0"
_MARK = "\ufdd1"
_DIGITS = ("\ufdd2", "\ufdd3")
_RESERVED = re.compile("[\ufdd0-\ufdd3]")
_MARKED = re.compile(f"{_MARK}([{''.join(_DIGITS)}]+){_MARK}")

_ASK: Message = {"role": "user", "content": "q"}
_SAY: Message = {"role": "assistant", "content": "a"}
_CALL: ToolCall = {"type": "function", "id": "callcall0", "function": {"name": "f", "arguments": {}}}
_THINK: Message = {
    "role": "assistant",
    "content": [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "a"}],
}
_TALKS: Sequence[list[Message]] = (
    [_ASK, _SAY, _ASK, _SAY],
    [{"role": "system", "content": "s"}, _ASK, _SAY],
    [_ASK, _THINK],
    [
        {"role": "system", "content": "", "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
        _ASK,
        {"role": "assistant", "content": "", "tool_calls": [_CALL]},
        {"role": "tool", "content": "r", "tool_call_id": "callcall0", "name": "f"},
        _SAY,
    ],
)
"""Of every kind that templates write in a way of its own."""


class ChatTemplate:
    """Renders messages to text. `variables` are set in the template, such as `enable_thinking`. A template that asks
    for the time is given `CURRENT_DATE`.

    Raises:
        InputError: the tokenizer has no chat template, or several and no `default`.
    """

    def __init__(self, tokenizer: Tokenizer, variables: Mapping[str, Any], *, declares_tools: bool = False) -> None:
        """`declares_tools`: the template for conversations that do, where that is another."""
        self._tokenizer: Any = tokenizer
        self._variables = dict(variables)
        self.source = template_source(tokenizer, declares_tools=declares_tools)
        # Whoever asks whether arguments are text writes them as they stand; others make JSON of what they are given.
        self._keeps_text = re.search(r"arguments['\"\])]*\s+is\s+(not\s+)?string", self.source) is not None
        self._form = CallForm()
        names = [*filter(is_a_name, map(str, tokenizer.added_tokens_decoder.values()))]
        self.names = _any_of(names)
        """Matches the name of a mark: of a token that is special, or that the template writes."""
        self.written = self._written()
        """The tokens that the template writes, as far as its text and some conversations show."""
        marks = self.written | special_names(tokenizer)
        self.names = _any_of([name for name in names if name in marks])

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"the chat template of {self._tokenizer.name_or_path}"

    def give_calls(self, form: CallForm) -> None:
        """From here on calls are given in that form."""
        self._form = form

    def render(self, messages: Sequence[Message], *, prompt: bool = False) -> str:
        """Guarded text of a conversation, up to the header of the answer to come if `prompt`.

        Raises:
            InputError: the template refuses the conversation, or the text holds what cookhouse keeps for itself.
        """
        return self._run(self._given_all(messages), messages, prompt=prompt)

    def places(self, messages: Sequence[Message], text: str, *, prompt: bool = False) -> list[Place | None]:
        """Place of each message's content in `text`, which is what `render` gave, white space around
        it excepted; None where the template does not write it as it is.
        """
        # Templates often ask whether there is content, so that marking none would change what they write.
        empty = [role for role in _ROLES_BY_LIKELIHOOD if any(m["role"] == role and not text_of(m) for m in messages)]
        for num in range(len(empty) + 1):
            found = self._places(messages, text, prompt=prompt, unmarked=empty[:num])
            if found is not None:
                return found
        return [None] * len(messages)

    def pieces(self, text: str) -> list[Piece]:
        """Guarded text as marks and plain text."""
        pieces: list[Piece] = []
        start = 0
        for match in self.names.finditer(text):
            pieces += [unguarded(text[start : match.start()]), Special(match[0])]
            start = match.end()
        pieces.append(unguarded(text[start:]))
        return [piece for piece in pieces if piece]

    def guarded(self, text: str) -> str:
        """Plain text as it stands in what `render` gives."""
        if _RESERVED.search(text):
            raise InputError("text holds one of U+FDD0 to U+FDD3, which are no characters; remove it")
        return self.names.sub(lambda match: match[0][0] + _GUARD + match[0][1:], text)

    def spelled(self, pieces: Sequence[Piece]) -> str:
        """The guarded text of pieces."""
        return "".join(
            piece if isinstance(piece, Special) else self.guarded(_RESERVED.sub("\ufffd", piece)) for piece in pieces
        )

    def generated(self, messages: Sequence[Message]) -> list[Place] | None:
        """Places of the template's own `{% generation %}` blocks in what `render` gives; None if it has none."""
        if not re.search(r"\{%-?\s*generation\s*-?%\}", self.source):
            return None
        from transformers.utils.chat_template_utils import render_jinja_template  # loads torch

        _, spans = render_jinja_template(
            conversations=[self._given_all(messages)],
            chat_template=self.source,
            return_assistant_tokens_mask=True,
            **{**self._tokenizer.special_tokens_map, **self._variables},
        )
        return [(start, end) for start, end in spans[0]]

    def marks(self, text: str) -> list[re.Match[str]]:
        """The marks of guarded text, in order."""
        return list(self.names.finditer(text))

    def _places(
        self, messages: Sequence[Message], text: str, *, prompt: bool, unmarked: Sequence[str]
    ) -> list[Place | None] | None:
        given = self._given_all(messages)
        for index, message in enumerate(given):
            if message["content"] or message["role"] not in unmarked:
                message["content"] = _marked(message["content"], index)
        try:
            marked = self._run(given, messages, prompt=prompt)
        except InputError:
            return None
        seen: dict[int, list[int]] = {}
        plain = ""
        start = 0
        for match in _MARKED.finditer(marked):
            plain += marked[start : match.start()]
            seen.setdefault(int("".join(str(_DIGITS.index(digit)) for digit in match[1]), 2), []).append(len(plain))
            start = match.end()
        if plain + marked[start:] != text:
            return None
        spans = (seen.get(index, []) for index in range(len(messages)))
        return [(span[0], span[1]) if len(span) == 2 else None for span in spans]

    def _run(self, given: list[dict[str, Any]], messages: Sequence[Message], *, prompt: bool) -> str:
        tools = [tool for message in messages for tool in message.get("tools", ())]
        if tools:  # declared apart; what carries them says nothing else
            given = [each for each, message in zip(given, messages, strict=True) if not _only_declares(message)]
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    given,
                    chat_template=self.source,
                    tools=self._guarded_in(tools) or None,
                    add_generation_prompt=prompt,
                    tokenize=False,
                    **self._variables,
                )
            )
        except InputError:
            raise
        except Exception as error:  # a template is a program of somebody else's
            raise InputError(
                f"{self.name} cannot write this conversation ({type(error).__name__}: {error}); change the "
                "conversation, or name a renderer"
            ) from error

    def _given_all(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        given = [self._given(message) for message in messages]
        if self._form.short_ids:
            shorten_ids(given)
        return given

    def _given(self, message: Message) -> dict[str, Any]:
        """A message in the form that `transformers` documents for templates."""
        thinking, text = split_thinking(message)
        given: dict[str, Any] = {"role": message["role"], "content": self.guarded(text)}
        if thinking is not None:
            given["reasoning_content"] = self.guarded(thinking)
        if message.get("tool_calls"):
            given["tool_calls"] = [
                self._guarded_in({**call, "function": {**call["function"], "arguments": self._arguments(call)}})
                for call in map(_without_place, message["tool_calls"])
            ]
        given |= {key: self._guarded_in(message[key]) for key in ("tool_call_id", "name") if key in message}
        return given

    def _arguments(self, call: Mapping[str, Any]) -> Any:
        arguments = call["function"]["arguments"]
        return read_arguments(arguments, as_text=self._form.as_text, keeps_text=self._keeps_text)

    def _written(self) -> frozenset[str]:
        written = {match[0] for match in self.names.finditer(self.source)}
        for talk in _TALKS:
            try:
                written |= {match[0] for match in self.marks(self.render(talk))}
                written |= {match[0] for match in self.marks(self.render(talk[:-1], prompt=True))}
            except InputError:  # it has no form for such a conversation
                continue
        return frozenset(written)

    def _guarded_in(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.guarded(value)
        if isinstance(value, Mapping):
            return {self.guarded(str(key)): self._guarded_in(each) for key, each in value.items()}
        return [self._guarded_in(each) for each in value] if isinstance(value, list | tuple) else value


def _any_of(names: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))) or r"(?!)")


def _only_declares(message: Message) -> bool:
    return bool(message.get("tools")) and not text_of(message)


def _marked(content: str, index: int) -> str:
    """The content with a mark at either end of what is no white space: templates trim."""
    mark = _MARK + "".join(_DIGITS[int(digit)] for digit in f"{index:b}") + _MARK
    body = content.strip()
    before, _, after = content.partition(body) if body else (content, "", "")
    return f"{before}{mark}{body}{mark}{after}"


def common_prefix(first: str, second: str) -> str:
    """Common beginning of both texts."""
    length = next(
        (n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), len(min(first, second, key=len))
    )
    return first[:length]


def _without_place(call: ToolCall) -> dict[str, Any]:
    """A call as templates know it."""
    return {key: value for key, value in call.items() if key != "place"}


def unguarded(text: str) -> str:
    """Guarded text as it was."""
    return text.replace(_GUARD, "")
