"""One sample of a chat, at once or in parts."""

import numpy as np
import pytest

from cookhouse.chat import get_renderer
from cookhouse.dialects.choice import ChatChoice, Said, joined
from cookhouse.dialects.openai import Completion, CompletionRequest
from cookhouse.dialects.openai.chat_answer import message_of
from cookhouse.dialects.texts import TokenTexts
from cookhouse.engine.contract import SampledSequence, SampleOutput
from cookhouse.models.tokenizers import get_tokenizer

END_MARK = "<|im_end|>"
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


@pytest.mark.parametrize("size", [1, 1000])
def test_a_call_that_cannot_be_read_stays_where_it_was_written(size: int) -> None:
    """Would catch it moved behind the text that follows it, or told before it is over."""
    broken = "<tool_call>\n{broken\n</tool_call>"
    parts = _said(f"I add.\n{broken}\nAnd again.\n{CALL}\n{broken}", size)
    assert [_shown(one) for one in parts] == [f"I add.\n{broken}\nAnd again.", "add", broken]


@pytest.mark.parametrize("size", [1, 1000])
def test_text_between_calls_stands_between_them(size: int) -> None:
    """Would catch an answer that is not streamed, whose blocks have all texts before all calls."""
    parts = _said(f"I add.\n{CALL}\nAnd again.\n{CALL}", size)
    assert [_shown(one) for one in parts] == ["I add.", "add", "And again.", "add"]


def _said(written: str, size: int) -> list[Said]:
    """What is said of a text that comes so many tokens at a time."""
    renderer = get_renderer("qwen3_instruct", get_tokenizer("cookhouse/tiny"))
    choice = ChatChoice(renderer.stream_response(), [], TokenTexts(renderer.encoder))
    tokens = renderer.encoder.encode_with_specials(written)
    said = []
    for start in range(0, len(tokens), size):
        part = np.array(tokens[start : start + size], dtype=np.int32)
        logprobs = np.zeros(part.size, dtype=np.float32)
        said += choice.feed(SampledSequence(tokens_T=part, logprobs_T=logprobs, is_stopped=False))
    return joined([*said, *choice.finish(is_stopped=True)])


def _shown(one: Said) -> str:
    if one["type"] == "function":
        return one["function"]["name"]
    return one["text"].strip() if one["type"] == "text" else one["thinking"]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("written", "stop", "text", "calls"),
    [
        (f"{CALL}\nObservation:", "Observation:", None, ["add"]),
        (f"I add.\n{CALL}\n{CALL}\nEND", "END", "I add.", ["add", "add"]),
        (f"I add.\n{CALL[:30]}", '"add"', 'I add.\n<tool_call>\n{"name": ', []),
    ],
)
def test_a_call_before_a_stop_is_kept(written: str, stop: str, text: str | None, calls: list[str], size: int) -> None:
    """Would catch an answer that loses its calls where it is not streamed."""
    renderer = get_renderer("qwen3_instruct", get_tokenizer("cookhouse/tiny"))
    prompt = renderer.build_generation_prompt([{"role": "user", "content": "?"}])
    choice = ChatChoice(renderer.stream_response(prompt), [stop], TokenTexts(renderer.encoder))
    tokens = renderer.encoder.encode_with_specials(written)
    said = []
    for start in range(0, len(tokens), size):
        part = np.array(tokens[start : start + size], dtype=np.int32)
        is_last = start + size >= len(tokens)
        said += choice.feed(
            SampledSequence(tokens_T=part, logprobs_T=np.zeros(part.size, dtype=np.float32), is_stopped=is_last)
        )
    message = message_of([*said, *choice.finish(is_stopped=True)])
    assert [call["function"]["name"] for call in message.get("tool_calls", ())] == calls
    assert (message["content"] or "").strip() == (text or "").strip()
    assert choice.finish_reason == ("tool_calls" if calls else "stop")


@pytest.mark.parametrize(("is_grammar_end", "num_scored"), [(True, 2), (False, 1)])
def test_a_special_token_that_ends_a_grammar_is_said_and_scored(is_grammar_end: bool, num_scored: int) -> None:
    """Would catch an answer that loses its last token, taken for the end mark of a turn; such a mark is not scored."""
    renderer = get_renderer("qwen3_instruct", get_tokenizer("cookhouse/tiny"))
    choice = ChatChoice(renderer.stream_response(), [], TokenTexts(renderer.encoder))
    tokens = np.array(renderer.encoder.encode_with_specials(f"a{END_MARK}"), np.int32)
    assert tokens.size == 2
    choice.feed(_ended(tokens, is_grammar_end=is_grammar_end))
    assert choice.next_tokens() == tokens.tolist()
    assert len(choice.scored) == num_scored


@pytest.mark.parametrize(("is_grammar_end", "text"), [(True, f"a{END_MARK}"), (False, "a")])
def test_a_completion_keeps_a_special_token_that_ends_its_grammar(is_grammar_end: bool, text: str) -> None:
    """Would catch a completion that loses its last token, taken for the one that stopped it."""
    encoder = get_renderer("qwen3_instruct", get_tokenizer("cookhouse/tiny")).encoder
    tokens = np.array(encoder.encode_with_specials(f"a{END_MARK}"), np.int32)
    request = CompletionRequest.model_validate({"model": "m", "prompt": "p", "logprobs": 0})
    completion = Completion(request, model="m", prompts=[[1]], encoder=encoder, texts=TokenTexts(encoder))
    ended = SampleOutput(request_id="r", sequences=[_ended(tokens, is_grammar_end=is_grammar_end)])
    (choice,) = completion.whole([ended])["choices"]
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"] == text


def _ended(tokens: np.ndarray, *, is_grammar_end: bool) -> SampledSequence:
    logprobs = np.zeros(tokens.size, np.float32)
    return SampledSequence(tokens_T=tokens, logprobs_T=logprobs, is_stopped=True, is_grammar_end=is_grammar_end)
