"""Fields of OpenAI, vLLM and llama.cpp: taken where they ask for nothing, refused by name where they ask for more."""

from typing import Any

import pytest

from cookhouse.dialects.errors import FieldError
from cookhouse.dialects.openai import ChatRequest, CompletionRequest
from cookhouse.dialects.openai.fields import check_letters
from cookhouse.dialects.openai.not_offered import CHAT_NOT_OFFERED, COMPLETION_NOT_OFFERED

CHAT = {"model": "m", "messages": [{"role": "user", "content": "a"}]}
COMPLETION = {"model": "m", "prompt": "a"}

# As their pages give the defaults, or how each is switched off; None: every value but null asks for something.
BOTH: dict[str, tuple[list[Any], Any]] = {
    "allowed_token_ids": ([[]], [3]),
    "audio": ([], {"voice": "alloy"}),
    "bad_words": ([[]], ["a"]),
    "best_of": ([1], 3),
    "chat_template": ([""], "{{ messages }}"),
    "documents": ([[]], [{"title": "a"}]),
    "dry_multiplier": ([0, 0.0], 0.8),
    "dynatemp_range": ([0.0], 0.5),
    "frequency_penalty": ([0, 0.0, 0.5], 2.5),
    "function_call": (["auto", "none"], {"name": "f"}),
    "functions": ([[]], [{"name": "f"}]),
    "grammar": ([""], 'root ::= "a"'),
    "guided_choice": ([[], ["a"]], "a"),
    "guided_grammar": (["", "a"], 3),
    "guided_json": ([{}, {"type": "object"}, "", '{"type": "string"}'], "{"),
    "guided_regex": (["", "a"], 3),
    "id_slot": ([-1], 1),
    "ignore_eos": ([False, True], "yes"),
    "include_reasoning": ([True], False),
    "include_stop_str_in_output": ([False], True),
    "json_schema": ([], {}),
    "kv_transfer_params": ([{}], {"a": 1}),
    "length_penalty": ([1.0], 2.0),
    "logit_bias": ([{}, [], {"3": 100}], {"a": 1}),
    "logits_processors": ([[]], ["a"]),
    "lora": ([[]], [{"id": 0, "scale": 1.0}]),
    "min_p": ([0, 0.0, 0.05], 1.5),
    "min_tokens": ([0, 3], -1),
    "mirostat": ([0], 2),
    "modalities": ([["text"]], ["audio"]),
    "n_cmpl": ([1], 2),
    "n_keep": ([0], 5),
    "n_probs": ([0], 3),
    "parallel_tool_calls": ([True], "yes"),
    "post_sampling_probs": ([False], True),
    "prediction": ([], {"type": "content", "content": "a"}),
    "presence_penalty": ([0, 0.0, -1], -2.5),
    "priority": ([0], 3),
    "reasoning_format": (["auto", "deepseek"], "none"),
    "repeat_penalty": ([1.0], 1.1),
    "repetition_penalty": ([1, 1.0, 1.2], 0),
    "response_format": ([{"type": "text"}, {"type": "json_object"}], {"type": "xml"}),
    "return_progress": ([False], True),
    "return_tokens": ([False], True),
    "samplers": ([], ["top_k"]),
    "skip_special_tokens": ([True], False),
    "spaces_between_special_tokens": ([True], False),
    "stop_token_ids": ([[], [3]], [-1]),
    "stream_options": (
        [{}, {"include_usage": False}, {"include_obfuscation": False}, {"continuous_usage_stats": False}],
        {"continuous_usage_stats": True},
    ),
    "structured_outputs": ([{}, {"choice": ["a"]}], {"structural_tag": "a"}),
    "suffix": ([""], "b"),
    "t_max_predict_ms": ([0], 100),
    "thinking_token_budget": ([-1], 10),
    "timings_per_token": ([False], True),
    "top_n_sigma": ([-1], 1.0),
    "truncate_prompt_tokens": ([], 10),
    "typical_p": ([1.0], 0.5),
    "use_beam_search": ([False], True),
    "verbosity": (["medium"], "low"),
    "vllm_xargs": ([{}], {"a": 1}),
    "web_search_options": ([], {}),
    "xtc_probability": ([0.0], 0.5),
}
OF_CHAT: dict[str, tuple[list[Any], Any]] = {
    "add_generation_prompt": ([True], False),
    "add_special_tokens": ([False], True),
    "chat_template_kwargs": ([{}, {"enable_thinking": None}], {"thinking": True}),
    "echo": ([False, True], 3),
    "n_predict": ([-1], 5),
    "tool_choice": (["auto", "none"], "required"),
    "top_logprobs": ([0], 3),
}
OF_COMPLETION: dict[str, tuple[list[Any], Any]] = {
    "continue_final_message": ([False], True),
    "reasoning_effort": ([], "low"),
    "add_special_tokens": ([True], False),
    "chat_template_kwargs": ([{}], {"enable_thinking": True}),
    "n_predict": ([], -1),
}
CASES = [(ChatRequest, CHAT, name, *case) for name, case in (BOTH | OF_CHAT).items()] + [
    (CompletionRequest, COMPLETION, name, *case)
    for name, case in (BOTH | OF_COMPLETION).items()
    if name != "parallel_tool_calls"
]


@pytest.mark.parametrize(("kind", "plain", "name", "nothing", "something"), CASES)
def test_a_value_that_can_be_had_is_taken_and_any_other_is_refused_by_name(
    kind: type[ChatRequest], plain: dict[str, Any], name: str, nothing: list[Any], something: Any
) -> None:
    """Would catch a client's defaults refused, and a wish that is dropped without a word. Of fields that are offered
    some values that ask for something stand among those that are taken.
    """
    for value in [None, *nothing]:
        kind.model_validate(plain | {name: value}).check()
    with pytest.raises(ValueError, match=name) as caught:
        kind.model_validate(plain | {name: something}).check()
    if isinstance(caught.value, FieldError):
        assert caught.value.field.startswith(name)


def test_no_field_is_left_out_above() -> None:
    """Those of vLLM and llama.cpp that only newer or older versions have are tried here."""
    tried = BOTH.keys() | OF_CHAT.keys() | OF_COMPLETION.keys()
    for kind, plain, table in (
        (ChatRequest, CHAT, CHAT_NOT_OFFERED),
        (CompletionRequest, COMPLETION, COMPLETION_NOT_OFFERED),
    ):
        for name in table.keys() - tried:
            for value in table[name].nothing:
                kind.model_validate(plain | {name: value}).check()
            with pytest.raises(FieldError, match=f"{name} is not offered here"):
                kind.model_validate(plain | {name: "something"}).check()


@pytest.mark.parametrize(
    ("given", "sampled"),
    [
        ({"top_k": 0}, {"top_k": -1}),
        ({"top_k": -1}, {"top_k": -1}),
        ({"top_k": 3}, {"top_k": 3}),
        ({"best_of": 2, "n": 2}, {"num_samples": 2}),
        ({"stop": ""}, {}),
        ({"stop": []}, {}),
    ],
)
def test_what_means_no_limit(given: dict[str, Any], sampled: dict[str, Any]) -> None:
    for kind, plain in ((ChatRequest, CHAT), (CompletionRequest, COMPLETION)):
        request: Any = kind.model_validate(plain | given)
        request.check()
        assert request.sampling().items() >= sampled.items()
        assert request.stops == ()


def test_both_names_of_the_limit_may_say_the_same() -> None:
    request = ChatRequest.model_validate(CHAT | {"max_tokens": 7, "max_completion_tokens": 7})
    request.check()
    assert request.limit == 7


def test_a_seed_is_drawn_where_a_request_is_accepted() -> None:
    """Would catch prompts of one request that all get the same samples, and a seed of the caller's that is dropped."""
    request = CompletionRequest.model_validate(COMPLETION)
    assert request.sampling()["seed"] != request.sampling()["seed"]
    assert CompletionRequest.model_validate({**COMPLETION, "seed": -1}).sampling()["seed"] == 2**64 - 1


def test_a_text_that_fits_no_context_is_refused_unread() -> None:
    """Would catch 8 MB of text that take a gigabyte and seconds as tokens, to be refused then."""
    check_letters(100, 3200, prompt="prompt")
    with pytest.raises(FieldError, match="100 tokens, and the prompt has 3201 letters") as refused:
        check_letters(100, 3201, prompt="prompt")
    assert refused.value.code == "context_length_exceeded"
