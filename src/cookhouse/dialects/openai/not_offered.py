"""Fields of requests to OpenAI, vLLM and llama.cpp that are not offered here: what each asks for when it asks for
nothing, and what to do instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_LEAVE_OUT = "leave it out"


@dataclass(frozen=True, slots=True)
class NotOffered:
    """`nothing` are the values, besides null, with which a field asks for nothing; any other is refused."""

    nothing: tuple[Any, ...] = ()
    way_out: str = _LEAVE_OUT


NOT_OFFERED: Mapping[str, NotOffered] = {
    # OpenAI's
    "audio": NotOffered(way_out="answers are text"),
    "function_call": NotOffered(("auto", "none"), "use tool_choice"),
    "functions": NotOffered(([],), "use tools"),
    "modalities": NotOffered((["text"],), "answers are text"),
    "moderation": NotOffered(),
    "prediction": NotOffered(),
    "suffix": NotOffered(("",), "nothing is filled in; leave it out"),
    "verbosity": NotOffered(("medium",)),
    "web_search_options": NotOffered(),
    # vLLM's
    "allowed_token_ids": NotOffered(([],)),
    "bad_words": NotOffered(([],)),
    "chat_template": NotOffered(("",), "the renderer of the weights writes the prompt"),
    "documents": NotOffered(([],), "put them into a message"),
    "include_reasoning": NotOffered((True,), "leave reasoning_content unread"),
    "include_stop_str_in_output": NotOffered((False,)),
    "kv_transfer_params": NotOffered(({},)),
    "length_penalty": NotOffered((1,)),
    "logits_processors": NotOffered(([],)),
    "max_repetition_pattern_size": NotOffered((0,)),
    "media_io_kwargs": NotOffered(({},)),
    "min_repetition_pattern_size": NotOffered((0,)),
    "mm_processor_kwargs": NotOffered(({},)),
    "priority": NotOffered((0,)),
    "prompt_embeds": NotOffered(([],)),
    "repetition_detection": NotOffered(),
    "repetition_min_count": NotOffered((0,)),
    "skip_special_tokens": NotOffered((True,), "use return_token_ids"),
    "spaces_between_special_tokens": NotOffered((True,)),
    "thinking_token_budget": NotOffered((-1,)),
    "truncate_prompt_tokens": NotOffered(way_out="shorten the prompt"),
    "use_beam_search": NotOffered((False,)),
    "vllm_xargs": NotOffered(({},)),
    # llama.cpp's
    "dry_multiplier": NotOffered((0,)),
    "dynatemp_range": NotOffered((0,)),
    "grammar": NotOffered(("",), "use structured_outputs.grammar"),
    "id_slot": NotOffered((-1,)),
    "json_schema": NotOffered(way_out="use response_format"),
    "lora": NotOffered(([],), "name the weights as the model"),
    "min_keep": NotOffered((0,)),
    "mirostat": NotOffered((0,)),
    "n_cache_reuse": NotOffered((0,)),
    "n_cmpl": NotOffered((1,), "use n"),
    "n_discard": NotOffered((0,)),
    "n_indent": NotOffered((0,)),
    "n_keep": NotOffered((0,)),
    "n_predict": NotOffered(way_out="use max_tokens"),
    "n_probs": NotOffered((0,), "use logprobs"),
    "post_sampling_probs": NotOffered((False,)),
    "reasoning_format": NotOffered(("auto", "deepseek"), "reasoning comes as reasoning_content"),
    "repeat_penalty": NotOffered((1,), "use repetition_penalty"),
    "response_fields": NotOffered(([],)),
    "return_progress": NotOffered((False,)),
    "return_tokens": NotOffered((False,), "use return_token_ids"),
    "samplers": NotOffered(),
    "sse_ping_interval": NotOffered((-1,)),
    "t_max_predict_ms": NotOffered((0,)),
    "timings_per_token": NotOffered((False,)),
    "top_n_sigma": NotOffered((-1,)),
    "typical_p": NotOffered((1,), "use top_p"),
    "xtc_probability": NotOffered((0,)),
}
CHAT_NOT_OFFERED: Mapping[str, NotOffered] = {
    **NOT_OFFERED,
    "add_special_tokens": NotOffered((False,)),
    "n_predict": NotOffered((-1,), "use max_tokens"),
}
COMPLETION_NOT_OFFERED: Mapping[str, NotOffered] = {
    **NOT_OFFERED,
    "add_generation_prompt": NotOffered((True,)),
    "continue_final_message": NotOffered((False,), "end the prompt with its text"),
    "reasoning_effort": NotOffered(way_out="a prompt has the effort that its text says"),
    "add_special_tokens": NotOffered((True,), "send the prompt as tokens"),
    "chat_template_kwargs": NotOffered(({},), "it is for /v1/chat/completions"),
}

IGNORED = frozenset(
    {
        # OpenAI's: for its own accounts and caches
        "metadata",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
        # how a prefix is kept, which no answer here depends on
        "cache_prompt",
        "cache_salt",
        # settings of ways to sample that are refused when they are on
        "dry_allowed_length",
        "dry_base",
        "dry_penalty_last_n",
        "dry_sequence_breakers",
        "dynatemp_exponent",
        "mirostat_eta",
        "mirostat_tau",
        "repeat_last_n",
        "xtc_threshold",
    }
)
"""They change nothing of an answer, whatever their value."""
