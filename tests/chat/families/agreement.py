"""Whether a renderer writes what its family's chat template writes.

A family adds a `Family` to `FAMILIES` of `families.py`. Every conversation is compared twice: as pieces, the special
tokens and the texts between them, always; and as tokens with what the template's text gives as a whole, where header
and answer, which a renderer tokenizes apart, give the same tokens together, and no content spells a special token.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.chat.families.conversations import FEATURES

from cookhouse.chat import Message, Piece, Renderer, Special, Tokenizer, TrainOnWhat, get_renderer, split_thinking

NOTHING_REFUSED = TrainOnWhat.ALL_USER_AND_SYSTEM_MESSAGES
"""Trains no answer, so that all can be written."""
_GUARD = "\ue000"
"""Keeps a special token's name in content from being read as one."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """How one renderer is compared with one template."""

    renderer: str | Callable[[Tokenizer], Renderer]
    tokenizer: str
    """Folder of shared/tokenizers."""
    template: str | None = None
    """A file in that folder; None: the tokenizer's own."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Variables of the template."""
    features: Sequence[str] = FEATURES
    ours: Callable[[list[Message]], list[Message]] = lambda messages: messages
    """A conversation without what the renderer deliberately does otherwise."""
    theirs: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = lambda messages: messages
    """The messages of the template, which have `reasoning_content` and no `tools`, with what it needs otherwise."""
    tail: str = ""
    """What the template writes after the last message."""
    edit: Callable[[str], str] = lambda text: text
    """The template's text, with what the renderer deliberately writes otherwise."""
    min_exact: int = 500
    """Conversations whose tokens are compared, too: others spell special tokens, or begin a text with a line break."""
    answer: Callable[[list[Message]], str] | None = None
    """The last answer as it is sampled, where the template writes it otherwise: it is compared as prompt and this."""

    @property
    def name(self) -> str:
        name = self.renderer if isinstance(self.renderer, str) else self.renderer.__name__
        return f"{name}-{self.tokenizer}{'' if self.template is None else '-' + Path(self.template).stem}"

    def make_renderer(self, tokenizer: Any) -> Renderer:
        return get_renderer(self.renderer, tokenizer) if isinstance(self.renderer, str) else self.renderer(tokenizer)


@dataclass(frozen=True, kw_only=True)
class Comparer:
    family: Family
    renderer: Renderer
    tokenizer: Any
    template: str | None
    marks: Mapping[int, Special]
    """Every token that no text can spell."""

    @classmethod
    def of(cls, family: Family, tokenizer: Any, folder: Path) -> "Comparer":
        template = None if family.template is None else (folder / family.template).read_text(encoding="utf-8")
        renderer = family.make_renderer(tokenizer)
        return cls(
            family=family,
            renderer=renderer,
            tokenizer=tokenizer,
            template=template,
            marks={token: Special(name) for name, token in renderer.encoder.marks.items()},
        )

    @cached_property
    def names(self) -> re.Pattern[str]:
        """Matches the name of a special token, but for the hundreds of placeholders that nothing writes."""
        names = sorted(self.marks.values(), key=len, reverse=True)
        used = [re.escape(name) for name in names if "place" not in name and "reserved" not in name]
        return re.compile(f"({'|'.join(used)})")

    def compare(self, messages: list[Message]) -> bool:
        """Assert that whole and prompts agree; whether whole tokens could be compared, too."""
        family = self.family
        ours = family.ours(messages)
        if family.answer is None:
            is_exact = self._compare(ours, self._text(messages).removesuffix(family.tail))
        else:
            text = self._text(messages[:-1], prompt=True) + family.answer(_guarded(messages))
            is_exact = self._compare(ours, text)
        for index, message in enumerate(messages):
            if message["role"] == "assistant":
                prompt = self.renderer.build_generation_prompt(family.ours(messages[:index])).to_ints()
                self._compare_pieces(prompt, self._text(messages[:index], prompt=True), messages)
        return is_exact

    def _compare(self, ours: list[Message], text: str) -> bool:
        renderer = self.renderer
        tokens = renderer.build_supervised_example(ours, NOTHING_REFUSED)[0].to_ints()
        self._compare_pieces(tokens, text, ours)
        layouts = renderer.layout(ours)
        parts = [part for layout in layouts for part in (layout.header, layout.filler, layout.output)]
        apart = [token for part in parts for token in renderer.encoder.encode(part)]
        together = renderer.encoder.encode([piece for part in parts for piece in part])
        if _GUARD in text or apart != together:
            return False
        assert tokens == self.tokenizer.encode(text, add_special_tokens=False)
        return True

    def _compare_pieces(self, tokens: list[int], text: str, messages: list[Message]) -> None:
        expected = [_unguarded(piece) for piece in self._split(text)]
        written = self.renderer.encoder.split(tokens, self.marks)
        normalizer = self.tokenizer.backend_tokenizer.normalizer
        if normalizer is not None:
            expected = [p if isinstance(p, Special) else normalizer.normalize_str(p) for p in expected]
        assert written == expected, json.dumps(messages, ensure_ascii=False)

    def _split(self, text: str) -> list[Piece]:
        found = self.names.split(text)
        return [Special(piece) if index % 2 else piece for index, piece in enumerate(found) if piece]

    def _text(self, messages: list[Message], *, prompt: bool = False) -> str:
        # An empty system message that only declares tools is none for a template, which is given them apart.
        said = [m for m in _guarded(messages) if m["content"] or not m.get("tools")]
        text = self.tokenizer.apply_chat_template(
            self.family.theirs([as_template_has_it(message) for message in said]),
            tools=next((message["tools"] for message in messages if message.get("tools")), None),
            chat_template=self.template,
            add_generation_prompt=prompt,
            tokenize=False,
            **self.family.options,
        )
        return self.family.edit(str(text))


def as_template_has_it(message: Message) -> dict[str, Any]:
    """A message as templates of `transformers` expect it: text as a string, reasoning and calls beside it."""
    converted: dict[str, Any] = {key: value for key, value in message.items() if key != "tools"}
    thinking, text = split_thinking(message)
    if not isinstance(message["content"], str):
        converted["content"] = text
        if thinking is not None:
            converted["reasoning_content"] = thinking
    return converted


def _guarded(messages: Sequence[Message]) -> list[Message]:
    """The messages with a guard in every name of a special token."""
    guarded: list[Message] = []
    for message in messages:
        content = message["content"]
        if isinstance(content, str):
            guarded.append({**message, "content": _guard(content)})
        else:
            parts = [{key: value if key == "type" else _guard(str(value)) for key, value in p.items()} for p in content]
            guarded.append({**message, "content": parts})  # type: ignore[typeddict-item]
    return guarded


def _guard(text: str) -> str:
    return re.sub(r"<(?=[|｜/a-z])", f"<{_GUARD}", text)


def _unguarded(piece: Piece) -> Piece:
    return piece if isinstance(piece, Special) else piece.replace(_GUARD, "")
