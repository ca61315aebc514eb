"""Each check finds a renderer that breaks its promise, and no other."""

from collections.abc import Sequence
from typing import Any

import pytest

from cookhouse.chat import Message, MessageLayout, Piece, Renderer, Special, Termination, get_renderer
from cookhouse.chat.checks import AWKWARD, CheckOutcome, check_renderer
from cookhouse.chat.families.qwen3 import Qwen3InstructRenderer
from cookhouse.models.tokenizers import get_tokenizer


class _OtherHeader(Qwen3InstructRenderer):
    """Trains answers behind a header that prompts do not have."""

    def build_generation_prompt(self, messages: Any, role: Any = "assistant", prefill: str | None = None) -> Any:
        return super().build_generation_prompt(messages, role, "\n" if prefill is None else prefill)


class _Upper(Qwen3InstructRenderer):
    def read_response(self, pieces: Sequence[Piece]) -> tuple[Message, Termination]:
        return super().read_response([piece if isinstance(piece, Special) else piece.upper() for piece in pieces])


class _NoEnd(Qwen3InstructRenderer):
    def layout(self, messages: Sequence[Message]) -> list[MessageLayout]:
        return [MessageLayout(header=each.header, output=each.output[:-1]) for each in super().layout(messages)]


class _Forgetful(Qwen3InstructRenderer):
    """Says that it extends, and drops what it was asked first."""

    def layout(self, messages: Sequence[Message]) -> list[MessageLayout]:
        whole = super().layout(messages)
        return whole if len(whole) < 4 else [MessageLayout(header=[], output=[]), *whole[1:]]


class _Forgeable(Qwen3InstructRenderer):
    def layout(self, messages: Sequence[Message]) -> list[MessageLayout]:
        return [
            MessageLayout(header=each.header, output=[Special(p) if p.startswith("<|im_end|>") else p for p in split])
            for each in super().layout(messages)
            for split in [[part for piece in each.output if isinstance(piece, str) for part in _split(piece)]]
        ]


def _split(piece: Piece) -> list[Piece]:
    if isinstance(piece, Special) or "<|im_end|>" not in piece:
        return [piece]
    before, name, after = piece.partition("<|im_end|>")
    return [before, name, after]


def broken(renderer: Renderer) -> set[str]:
    return {r.promise for r in check_renderer(renderer, AWKWARD) if r.outcome is CheckOutcome.BROKEN}


@pytest.mark.parametrize("name", ["qwen3", "qwen3_instruct", "qwen3_disable_thinking", "role_colon", "template"])
def test_our_renderers_keep_every_promise(name: str) -> None:
    assert broken(get_renderer(name, get_tokenizer("cookhouse/tiny"))) == set()


@pytest.mark.parametrize(
    ("renderer", "promises"),
    [
        (_OtherHeader, {"prefix", "extension"}),
        (_Upper, {"round trip"}),
        (_NoEnd, {"stop"}),
        (_Forgetful, {"extension"}),
        (_Forgeable, {"no forgery"}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_broken_promise_is_found(renderer: type[Renderer], promises: set[str]) -> None:
    assert broken(renderer(get_tokenizer("cookhouse/tiny"))) == promises


def test_what_a_renderer_has_no_form_for_is_refused_and_not_broken() -> None:
    results = check_renderer(get_renderer("role_colon", get_tokenizer("cookhouse/tiny")), AWKWARD)
    refused = {result.conversation for result in results if result.outcome is CheckOutcome.REFUSED}
    assert refused == {"thinking", "a call", "two calls at once"}


def test_where_a_renderer_differs_from_the_template_is_told() -> None:
    results = check_renderer(get_renderer("role_colon", get_tokenizer("cookhouse/tiny")), {"x": AWKWARD["one turn"]})
    (found,) = [result for result in results if result.promise == "template"]
    assert found.outcome is CheckOutcome.DIFFERS
    assert found.detail.startswith("'User: What is 2 + 2?")
    assert "where the template has '<|im_start|>user" in found.detail
