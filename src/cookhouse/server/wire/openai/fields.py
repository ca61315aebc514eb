"""The fields that requests for chat and for completions share, and what becomes of those that are not read here."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from cookhouse.engine.contract import BaseModelInfo
from cookhouse.server.wire.openai.errors import FieldError

MAX_SAMPLES = 128
MAX_TOP_LOGPROBS = 20
_MAX_NAME = 1024
_MAX_STOPS = 16


def _as_list(stop: object) -> object:
    return [stop] if isinstance(stop, str) else stop


Stop = Annotated[str, Field(min_length=1, max_length=256)]
TopLogprobs = Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)]

_IGNORED = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)
"""They change nothing of an answer."""
_NEUTRAL: Mapping[str, Sequence[Any]] = {
    "frequency_penalty": [0],
    "presence_penalty": [0],
    "logit_bias": [{}],
    "modalities": [["text"]],
    "response_format": [{"type": "text"}],
    "parallel_tool_calls": [True],
    "best_of": [1],
    "suffix": [""],
    "echo": [False],
}
"""Values of fields that are not offered with which they ask for nothing."""
_REFUSED: Mapping[str, str] = {
    "audio": "answers are text",
    "best_of": "ask for n samples, and choose",
    "echo": "it is for /v1/completions",
    "frequency_penalty": "leave it out",
    "function_call": "use tool_choice",
    "functions": "use tools",
    "logit_bias": "leave it out",
    "modalities": "answers are text",
    "moderation": "leave it out",
    "parallel_tool_calls": "a model makes as many calls as it likes",
    "prediction": "leave it out",
    "presence_penalty": "leave it out",
    "reasoning_effort": "how a model thinks is its renderer's to say",
    "response_format": "answers are free text; say in a message what they are to look like",
    "suffix": "nothing is filled in; leave it out",
    "verbosity": "leave it out",
    "web_search_options": "leave it out",
}


class StreamOptions(BaseModel):
    model_config = ConfigDict(strict=True)

    include_usage: bool | None = None


class SamplingFields(BaseModel):
    """What both kinds of request say of how to sample."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    model: str = Field(min_length=1, max_length=_MAX_NAME)
    max_tokens: int | None = None
    n: Annotated[int, Field(ge=1, le=MAX_SAMPLES)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    stop: Annotated[list[Stop], Field(max_length=_MAX_STOPS), BeforeValidator(_as_list)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    """No field of OpenAI's, but of most others'."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None

    def check(self) -> None:
        """Refuse what is not offered and changes what is asked for.

        Raises:
            FieldError: names the field, and the way out.
        """
        for name, value in (self.model_extra or {}).items():
            if value is None or name in _IGNORED or value in _NEUTRAL.get(name, ()):
                continue
            if name in _REFUSED:
                raise FieldError(name, f"{name} is not offered here; {_REFUSED[name]}", code="unsupported_parameter")
            raise FieldError(name[:200], f"unknown field {name[:200]!r}; leave it out", code="unknown_parameter")
        if self.top_k == 0:
            raise FieldError("top_k", "top_k is 0; it must be at least 1, or -1 for no limit")
        if self.stream_options is not None and not self.stream:
            raise FieldError("stream_options", "stream_options go with stream=true; leave them out, or stream")

    @property
    def num_samples(self) -> int:
        return 1 if self.n is None else self.n

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts before which an answer ends."""
        return tuple(self.stop or ())

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with what it took."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def sampling(self) -> dict[str, Any]:
        """The fields of a `SampleRequest` that have the same meaning."""
        return {
            "num_samples": self.num_samples,
            "temperature": 1.0 if self.temperature is None else self.temperature,
            "top_k": -1 if self.top_k is None else self.top_k,
            "top_p": 1.0 if self.top_p is None else self.top_p,
            "seed": None if self.seed is None else self.seed % 2**64,
            "is_streamed": bool(self.stream),
        }


def check_length(info: BaseModelInfo, num_prompt: int, max_tokens: int | None, *, field: str) -> None:
    """Refuse a prompt that leaves no room for what is asked for."""
    context = info.max_context_tokens
    wanted = 1 if max_tokens is None else max_tokens
    if num_prompt + wanted > context:
        raise FieldError(
            field,
            f"this model's maximum context length is {context} tokens; the prompt has {num_prompt}, and "
            f"{wanted} more are asked for: shorten it, or lower max_tokens",
            code="context_length_exceeded",
        )


def usage(num_prompt: int, num_sampled: int, num_reused: int) -> dict[str, Any]:
    """What an answer took, in tokens."""
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_sampled,
        "total_tokens": num_prompt + num_sampled,
        "prompt_tokens_details": {"cached_tokens": num_reused},
    }
