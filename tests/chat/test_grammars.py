"""Grammars of required calls, for each renderer: each takes the renderer's own writing of a call, and no free text."""

from typing import Any

import pytest
from llguidance import LLMatcher
from llguidance.hf import from_tokenizer
from tests.chat.families.conversations import TOOLS
from tests.chat.forms import every_tokenizer, features_of, make_renderer

from cookhouse.chat import Renderer, supported_renderers
from cookhouse.chat.grammars import calls_grammar
from cookhouse.errors import InputError

ASKED: Any = [{"role": "user", "content": "Rain?"}]
ARGUMENTS = '{"city": "Oslo"}'
WITHOUT_GRAMMAR = "human_ai", "role_colon", "qwen3_5", "qwen3_5_disable_thinking", "qwen3_5_preserve_thinking"
"""Renderers that have no calls, or whose arguments are no JSON."""
ONE_CALL = "kimi_k2", "kimi_k2_instruct"
"""Renderers that number their calls: a grammar, which does not count, allows one."""


@pytest.fixture(scope="module")
def tokens() -> Any:
    tokenizer = every_tokenizer()
    return from_tokenizer(tokenizer, n_vocab=len(tokenizer))


def _written(renderer: Renderer, *calls: tuple[str, str]) -> list[int]:
    """The answer that the renderer writes with some calls, and no text."""
    made: Any = [
        {"type": "function", "id": f"functions.{name}:{number}", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(calls)
    ]
    return renderer.build_response([*ASKED, {"role": "assistant", "content": "", "tool_calls": made}])


def _is_taken(tokens: Any, grammar: str, renderer: Renderer, written: list[int]) -> bool:
    """True if the answer may be these tokens; a stop at their end need not be in the grammar."""
    matcher = LLMatcher(tokens, grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    number = matcher.validate_tokens(written)
    matcher.consume_tokens(written[:number])
    rest = written[number:]
    return bool(matcher.is_accepting()) and len(rest) <= 1 and {*rest} <= {*renderer.get_stop_sequences()}


@pytest.mark.parametrize("name", [n for n in supported_renderers() if n not in WITHOUT_GRAMMAR])
def test_a_renderers_own_writing_of_a_call_is_taken_and_free_text_is_not(name: str, tokens: Any) -> None:
    """Would catch a grammar of another format's calls, of which this renderer reads none."""
    renderer = make_renderer(name, every_tokenizer())
    prompt = renderer.build_generation_prompt(ASKED)
    for is_single, tools in ((False, TOOLS), (True, TOOLS[:1])):
        grammar = calls_grammar(renderer, prompt, tools, is_single=is_single)
        assert _is_taken(tokens, grammar, renderer, _written(renderer, ("weather", ARGUMENTS)))
        assert not _is_taken(tokens, grammar, renderer, renderer.encoder.encode("It rains."))
        assert not _is_taken(tokens, grammar, renderer, _written(renderer, ("weather", '{"city": 3}')))
        assert not _is_taken(tokens, grammar, renderer, _written(renderer, ("other", ARGUMENTS)))
        assert _is_taken(tokens, grammar, renderer, _written(renderer, ("now", "{}"))) != is_single
    if "parallel" in features_of(name):
        several = _written(renderer, ("weather", ARGUMENTS), ("now", "{}"))
        is_several = _is_taken(tokens, calls_grammar(renderer, prompt, TOOLS, is_single=False), renderer, several)
        assert is_several != (name in ONE_CALL)
        assert not _is_taken(tokens, calls_grammar(renderer, prompt, TOOLS, is_single=True), renderer, several)


@pytest.mark.parametrize("name", WITHOUT_GRAMMAR)
def test_calls_that_no_grammar_can_say_are_refused_in_words(name: str) -> None:
    renderer = make_renderer(name, every_tokenizer())
    with pytest.raises(InputError, match="cannot be held to a grammar; let tool_choice be auto"):
        calls_grammar(renderer, renderer.build_generation_prompt(ASKED), TOOLS, is_single=False)
