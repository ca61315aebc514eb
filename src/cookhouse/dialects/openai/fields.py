"""The fields that requests for chat and for completions share, and what becomes of those that are not read here."""

import secrets
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from cookhouse.dialects.errors import FieldError
from cookhouse.dialects.openai.forms import FormFields
from cookhouse.dialects.openai.not_offered import IGNORED, NOT_OFFERED, NotOffered

MAX_SAMPLES = 128
MAX_TOP_LOGPROBS = 20
MAX_NAME = 1024
MAX_STOPS = 16
_MAX_STOP_TOKENS = 128
_MAX_NAMED = 5
_TOO_LONG = "context_length_exceeded"
_LETTERS_PER_TOKEN = 32
"""On average over a prompt that fills a context; it is about 4 in English, and 8 in programs with wide margins."""
MAX_SHOWN = 200
"""Letters of a name from outside that a message shows."""


def _as_list(stop: object) -> object:
    if isinstance(stop, str):
        return [stop] if stop else []
    return stop


def _as_bias(bias: object) -> object:
    return {} if bias == [] else bias


Stop = Annotated[str, Field(min_length=1, max_length=256)]
Bias = Annotated[float, Field(ge=-100, le=100)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
TopLogprobs = Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)]


class StreamOptions(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    """vLLM's: with `include_usage`, each chunk has the usage so far."""

    @property
    def asks(self) -> bool:
        """True if it asks for anything."""
        return bool(self.include_usage or self.continuous_usage_stats)

    def check(self) -> None:
        for name, value in (self.model_extra or {}).items():
            if value not in (None, False):
                field = f"stream_options.{name[:MAX_SHOWN]}"
                raise FieldError(field, f"{field} is not offered here; leave it out", code="unsupported_parameter")


class SamplingFields(FormFields):
    """Sampling fields that both kinds of request have."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)
    not_offered: ClassVar[Mapping[str, NotOffered]] = NOT_OFFERED
    ignores_unknown: ClassVar[bool] = False

    model: str = Field(min_length=1, max_length=MAX_NAME)
    best_of: int | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    ignore_eos: bool | None = None
    """vLLM's, as `min_p`, `min_tokens`, `repetition_penalty` and `stop_token_ids`."""
    logit_bias: Annotated[dict[str, Bias], Field(max_length=1024), BeforeValidator(_as_bias)] | None = None
    max_tokens: int | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    min_tokens: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_SAMPLES)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = None
    return_token_ids: bool | None = None
    """No field of OpenAI's, but of vLLM's."""
    return_tokens_as_token_ids: bool | None = None
    """vLLM's: log-probabilities name tokens by id."""
    prompt_logprobs: TopLogprobs | None = None
    """vLLM's: candidates for each token of the prompt."""
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    stop: Annotated[list[Stop], Field(max_length=MAX_STOPS), BeforeValidator(_as_list)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=_MAX_STOP_TOKENS)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    """No field of OpenAI's, but of most others', where 0 and -1 mean no limit."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None

    def check(self) -> None:
        """Refuse what is not offered and changes what is asked for.

        Raises:
            FieldError: names the field, and the way out.
        """
        for name, value in (self.model_extra or {}).items():
            if value is None or name in IGNORED:
                continue
            known = self.not_offered.get(name)
            if known is None and self.ignores_unknown:
                continue
            if known is None:
                shown = name[:MAX_SHOWN]
                raise FieldError(shown, f"unknown field {shown!r}; leave it out", code="unknown_parameter")
            if value not in known.nothing:
                raise FieldError(name, f"{name} is not offered here; {known.way_out}", code="unsupported_parameter")
        if self.best_of not in (None, 1, self.num_samples):
            raise FieldError(
                "best_of", "best_of is not offered here; ask for n samples, and choose", code="unsupported_parameter"
            )
        self._check_shape()
        if self.stream_options is not None:
            self.stream_options.check()
        if self.prompt_logprobs is not None and self.stream:
            raise FieldError("prompt_logprobs", "prompt_logprobs do not go with stream=true; leave one of them out")
        if self.stream_options is not None and self.stream_options.asks and not self.stream:
            raise FieldError("stream_options", "stream_options go with stream=true; leave them out, or stream")

    def _check_shape(self) -> None:
        if stray := [token for token in self.logit_bias or {} if not token.isdecimal()]:
            shown = ", ".join(repr(token[:MAX_SHOWN]) for token in stray[:_MAX_NAMED])
            more = f" and {len(stray) - _MAX_NAMED} more" if len(stray) > _MAX_NAMED else ""
            are = "are no token ids" if stray[1:] else "is no token id"
            raise FieldError("logit_bias", f"logit_bias has {shown}{more}, which {are}")
        ends = {"ignore_eos": self.ignore_eos, "min_tokens": self.min_tokens}
        given = next((name for name, value in ends.items() if value), None)
        if self.form() is not None and given is not None:
            raise FieldError(given, f"{given} does not go with a form of the answer, which says where that ends")

    @property
    def num_samples(self) -> int:
        return 1 if self.n is None else self.n

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts before which an answer ends."""
        return tuple(self.stop or ())

    @property
    def includes_usage(self) -> bool:
        """True if a stream ends with its usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def counts_usage(self) -> bool:
        """True if each chunk of a stream has the usage so far."""
        return self.includes_usage and bool(self.stream_options and self.stream_options.continuous_usage_stats)

    def sampling(self) -> dict[str, Any]:
        """The fields of a `SampleRequest` that have the same meaning."""
        return {
            "num_samples": self.num_samples,
            "temperature": 1.0 if self.temperature is None else self.temperature,
            "top_k": self.top_k or -1,
            "top_p": 1.0 if self.top_p is None else self.top_p,
            "seed": secrets.randbits(63) if self.seed is None else self.seed % 2**64,
            "is_streamed": bool(self.stream),
            "min_p": self.min_p or 0.0,
            "min_tokens": self.min_tokens or 0,
            "ignore_eos": bool(self.ignore_eos),
            "frequency_penalty": self.frequency_penalty or 0.0,
            "presence_penalty": self.presence_penalty or 0.0,
            "repetition_penalty": 1.0 if self.repetition_penalty is None else self.repetition_penalty,
            "logit_bias": {int(token): bias for token, bias in (self.logit_bias or {}).items()},
        }


def check_letters(context: int, num_letters: int, *, prompt: str) -> None:
    """Refuse a text that is too long by far for a context of so many tokens, before it is read: tokens take two hundred
    times its memory.
    """
    if num_letters > _LETTERS_PER_TOKEN * context:
        raise FieldError(
            prompt,
            f"this model's maximum context length is {context} tokens, and the prompt has {num_letters} letters, of "
            f"which at most {_LETTERS_PER_TOKEN} for each token are read: shorten it",
            code=_TOO_LONG,
        )


def check_length(context: int, num_prompt: int, max_tokens: int | None, *, prompt: str, limit: str) -> None:
    """Refuse a prompt that leaves no room in a context, and a limit over what it leaves; `prompt` and `limit` name
    their fields.
    """
    room = context - num_prompt
    said = f"this model's maximum context length is {context} tokens, and the prompt has {num_prompt}"
    if room < 1:
        raise FieldError(prompt, f"{said}, which leaves no room for an answer: shorten it", code=_TOO_LONG)
    if max_tokens is not None and max_tokens > room:
        raise FieldError(limit, f"{limit} is {max_tokens}; {said}: give at most {room}", code=_TOO_LONG)


def usage(num_prompt: int, num_sampled: int, num_reused: int) -> dict[str, Any]:
    """Usage of an answer, in tokens."""
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_sampled,
        "total_tokens": num_prompt + num_sampled,
        "prompt_tokens_details": {"cached_tokens": num_reused},
    }
