"""vLLM's routes of tokens: samples of token ids, tokens of a text or a conversation, text of tokens. Whatever cannot be
read is a `FieldError`.
"""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from cookhouse.dialects.errors import FieldError
from cookhouse.dialects.logprobs import ScoredToken, id_name, prompt_logprobs, scored_prompt, scored_sample
from cookhouse.dialects.openai.chat import ChatRequest
from cookhouse.dialects.openai.completions import Tokens
from cookhouse.dialects.openai.fields import MAX_NAME, MAX_TOP_LOGPROBS, SamplingFields, StreamOptions, TokenId, usage
from cookhouse.dialects.openai.not_offered import NOT_OFFERED, NotOffered
from cookhouse.dialects.sampled import SampledSequence, SampleOutput
from cookhouse.dialects.shaped import ShapedTokens

_MAX_ID = 256
_OF_TEXT = ("detokenize", "skip_special_tokens", "spaces_between_special_tokens")
"""How text would be made of the tokens, which stay tokens here."""


class SamplingParams(SamplingFields):
    """`sampling_params` of vLLM; keys that it does not know change nothing."""

    not_offered: ClassVar[Mapping[str, NotOffered]] = {
        name: known for name, known in NOT_OFFERED.items() if name not in _OF_TEXT
    }
    ignores_unknown: ClassVar[bool] = True

    model: str = ""
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None


class GenerateRequest(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    token_ids: Tokens
    model: str | None = Field(default=None, max_length=MAX_NAME)
    sampling_params: SamplingParams = Field(default_factory=SamplingParams)
    request_id: Annotated[str, Field(max_length=_MAX_ID)] | None = None
    return_token_ids: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    output_mode: str | None = None

    def check(self) -> None:
        """Refuse what is not offered. Raises `FieldError`."""
        self.sampling_params.check()
        limit = self.sampling_params.max_tokens
        if limit is not None and not 1 <= limit < 2**31:
            raise FieldError("sampling_params.max_tokens", f"max_tokens is {limit}; it must be from 1 to the context")
        if self.output_mode not in (None, "tokens"):
            raise FieldError("output_mode", "output_mode is tokens here; decode them, or use /v1/completions")
        for name in ("features", "content_parts"):
            if (self.model_extra or {}).get(name):
                raise FieldError(name, f"{name}: images are not taken here")


@dataclass
class _Choice:
    is_ended: bool = False
    num_tokens: int = 0
    shaped: ShapedTokens = field(default_factory=ShapedTokens)


class Generation:
    """The answer to one request, of n choices, with every token that was sampled, the one that stops included."""

    def __init__(self, request: GenerateRequest, *, model: str, prompt: Sequence[int]) -> None:
        """`model` says which weights answer."""
        self._request = request
        self._params = request.sampling_params
        self._model = model
        self._prompt = [*prompt]
        self._head = {
            "request_id": request.request_id or f"gen-{secrets.token_hex(12)}",
            "model": model,
            "created": int(time.time()),
            "output_mode": "tokens",
        }
        self._choices = [_Choice() for _ in range(self._params.num_samples)]

    def whole(self, output: SampleOutput) -> dict[str, Any]:
        """The answer at once."""
        choices = [self._choice(index, one, is_over=True) for index, one in enumerate(output.sequences)]
        answer = {**self._head, "choices": choices, "usage": self._usage(output)}
        if self._params.prompt_logprobs is not None:
            answer["prompt_logprobs"] = prompt_logprobs(scored_prompt(self._prompt, output))
        return answer | self._prompt_tokens()

    def chunks(self, output: SampleOutput) -> list[dict[str, Any]]:
        """Chunks to send for an output of the engine."""
        chunks = []
        for index, sequence in enumerate(output.sequences):
            choice = self._choices[index]
            is_over = sequence.is_stopped or not output.is_partial
            if choice.is_ended or not (is_over or len(sequence.tokens_T)):
                continue
            one = self._choice(index, sequence, is_over=is_over, is_told=not output.is_partial)
            chunks.append({**self._head, "choices": [one]})
        if not output.is_partial and self._request.stream_options and self._request.stream_options.include_usage:
            chunks.append({**self._head, "choices": [], "usage": self._usage(output)})
        return chunks

    def _choice(self, index: int, sequence: SampledSequence, *, is_over: bool, is_told: bool = False) -> dict[str, Any]:
        """`is_told`: its tokens have been sent before, and this says how it ended."""
        choice = self._choices[index]
        choice.is_ended = is_over
        scored = [] if is_told else scored_sample(sequence)
        choice.num_tokens += len(scored)
        said: dict[str, Any] = {"index": index, "token_ids": [one.token for one in scored], "finish_reason": None}
        said["logprobs"] = None if self._params.logprobs is None else {"content": [*map(_entry, scored)]}
        if not is_told:
            choice.shaped.add(sequence)
        said |= choice.shaped.next()
        if is_over:
            said["finish_reason"] = "stop" if sequence.is_stopped else "length"
            said["weight_versions"] = [{"version": self._model, "start": 0, "end": choice.num_tokens}]
        return said

    def _prompt_tokens(self) -> dict[str, Any]:
        return {"prompt_token_ids": self._prompt} if self._request.return_token_ids else {}

    def _usage(self, output: SampleOutput) -> dict[str, Any]:
        num_sampled = sum(len(sequence.tokens_T) for sequence in output.sequences)
        return usage(len(self._prompt), num_sampled, output.num_reused_tokens)


def _entry(one: ScoredToken) -> dict[str, Any]:
    """Both forms that its clients read: `token` with the id in it, and `token_id`."""
    top = [{**_named(token), "logprob": logprob, "rank": rank} for rank, (token, logprob) in enumerate(one.top, 1)]
    rank = next((place["rank"] for place in top if place["token_id"] == one.token), None)
    return {**_named(one.token), "logprob": one.logprob, "rank": rank, "top_logprobs": top}


def _named(token: int) -> dict[str, Any]:
    return {"token": id_name(token), "token_id": token, "bytes": None}


class TokenizeRequest(BaseModel):
    """A prompt, or messages with the other fields of a chat."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = Field(default=None, max_length=MAX_NAME)
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None

    def check(self) -> None:
        """Raises `FieldError` where there is not one of both."""
        if (self.prompt is None) == (self.messages is None):
            raise FieldError("prompt", "give a prompt or messages, and not both")

    def chat(self, model: str) -> ChatRequest:
        """The conversation as a request for an answer to it."""
        return ChatRequest(model=model, messages=self.messages or [], **(self.model_extra or {}))


class DetokenizeRequest(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = Field(default=None, max_length=MAX_NAME)
    tokens: Annotated[list[TokenId], Field(max_length=2**22)]
