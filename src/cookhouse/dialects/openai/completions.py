"""Completions: prompts that are text or tokens, with their log-probabilities where asked for."""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from cookhouse.chat import UNFINISHED, Encoder, GrowingText
from cookhouse.dialects.errors import FieldError
from cookhouse.dialects.logprobs import CompletionLogprobs, ScoredToken, prompt_logprobs, scored_prompt, scored_sample
from cookhouse.dialects.openai.fields import MAX_SAMPLES, SamplingFields, TokenId, TopLogprobs, usage
from cookhouse.dialects.openai.not_offered import COMPLETION_NOT_OFFERED, NotOffered
from cookhouse.dialects.sampled import SampledSequence, SampleOutput
from cookhouse.dialects.shaped import ShapedTokens
from cookhouse.dialects.texts import StopCutter, TokenTexts

_DEFAULT_MAX_TOKENS = 16
_MAX_PROMPTS = 1024

Tokens = Annotated[list[TokenId], Field(min_length=1)]


Texts = Annotated[list[str], Field(min_length=1, max_length=_MAX_PROMPTS)]
TokenLists = Annotated[list[Tokens], Field(min_length=1, max_length=_MAX_PROMPTS)]


def _as_number(logprobs: object) -> object:
    return (1 if logprobs else None) if isinstance(logprobs, bool) else logprobs


def _explained(value: object, check: ValidatorFunctionWrapHandler) -> Any:
    try:
        return check(value)
    except ValidationError as error:
        raise ValueError(
            f"give a text, a list of token ids, or 1 to {_MAX_PROMPTS} texts or lists of token ids, none of them empty"
        ) from error


class CompletionRequest(SamplingFields):
    not_offered: ClassVar[Mapping[str, NotOffered]] = COMPLETION_NOT_OFFERED

    prompt: Annotated[str | Tokens | Texts | TokenLists, WrapValidator(_explained)]
    echo: bool | None = None
    logprobs: Annotated[TopLogprobs | None, BeforeValidator(_as_number)] = None
    """True is 1, as of a chat."""

    def check(self) -> None:
        super().check()
        if self.max_tokens is not None and not (0 if self.echo else 1) <= self.max_tokens < 2**31:
            least = "0" if self.echo else "1 (with echo, 0)"
            raise FieldError(
                "max_tokens", f"max_tokens is {self.max_tokens}; it must be from {least} to the model's context"
            )
        num_choices = len(self.prompts) * self.num_samples
        if num_choices > max(_MAX_PROMPTS, MAX_SAMPLES):
            raise FieldError("n", f"{len(self.prompts)} prompts x n {self.num_samples} are more than {_MAX_PROMPTS}")

    @property
    def prompts(self) -> list[str] | list[list[int]]:
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [self.prompt]
        return self.prompt

    @property
    def limit(self) -> int:
        """Tokens to sample at most."""
        return _DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens

    @property
    def scores_prompt(self) -> bool:
        return (bool(self.echo) and self.logprobs is not None) or self.prompt_logprobs is not None

    @property
    def num_prompt_candidates(self) -> int:
        """For each place of the prompt."""
        echoed = self.logprobs or 0 if self.echo else 0
        return max(echoed, self.prompt_logprobs or 0)


@dataclass
class _Choice:
    text: GrowingText
    cutter: StopCutter
    logprobs: CompletionLogprobs
    num_given: int = 0
    """Letters that the cutter has been fed."""
    scored: list[ScoredToken] = field(default_factory=list)
    """Those that no text has been given with."""
    prompt: Sequence[int] = ()
    tokens: list[int] = field(default_factory=list)
    """Those that no text has been given with, the one that stops included."""
    shaped: ShapedTokens = field(default_factory=ShapedTokens)
    num_sampled: int = 0
    is_begun: bool = False
    is_ended: bool = False


class Completion:
    """The answer to one request: for each prompt its n choices, in order."""

    def __init__(
        self,
        request: CompletionRequest,
        *,
        model: str,
        prompts: Sequence[Sequence[int]],
        encoder: Encoder,
        texts: TokenTexts,
    ) -> None:
        """`model` says which weights answer; `prompts` are in tokens."""
        self._request = request
        self._prompts = prompts
        self._encoder = encoder
        self._texts = texts
        self._head = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._choices = [
            _Choice(
                text=GrowingText(encoder, prompt),
                cutter=StopCutter(request.stops),
                logprobs=CompletionLogprobs(texts, by_id=bool(request.return_tokens_as_token_ids)),
                prompt=prompt,
            )
            for prompt in prompts
            for _ in range(request.num_samples)
        ]
        self._echoed: set[int] = set()
        self._num_reused = 0

    def chunks(self, position: int, output: SampleOutput) -> list[dict[str, Any]]:
        """Chunks to send for an output of the engine for one prompt."""
        first = position * self._request.num_samples
        chunks: list[dict[str, Any]] = []
        echo = self._echo(position, output)
        for index, sequence in enumerate(output.sequences, start=first):
            choice = self._choices[index]
            said = echo
            if output.is_partial and len(sequence.tokens_T) and not choice.is_ended:
                choice.num_sampled += len(sequence.tokens_T)
                said += self._feed(choice, sequence)
            is_over = sequence.is_stopped or not output.is_partial
            if is_over and not choice.is_ended:
                said += self._finish(choice)
                reason = _reason(choice, sequence)
                chunks.append(self._chunk(index, said, finish_reason=reason))
            elif said:
                chunks.append(self._chunk(index, said))
        if not output.is_partial:
            self._count(position, output)
        return chunks

    def end(self) -> list[dict[str, Any]]:
        """Chunks to send when all prompts have their answers."""
        return [{**self._head, "choices": [], "usage": self._usage()}] if self._request.includes_usage else []

    def whole(self, outputs: Sequence[SampleOutput]) -> dict[str, Any]:
        """The answer at once, from what the engine said of each prompt."""
        choices = []
        for position, output in enumerate(outputs):
            self._count(position, output)
            echo = self._echo(position, output)
            for index, sequence in enumerate(output.sequences, start=position * self._request.num_samples):
                choice = self._choices[index]
                text = echo + self._feed(choice, sequence) + self._finish(choice)
                choices.append(self._choice(index, text, _reason(choice, sequence)) | self._scores(position, output))
        return {**self._head, "choices": choices, "usage": self._usage()}

    def _scores(self, position: int, output: SampleOutput) -> dict[str, Any]:
        if self._request.prompt_logprobs is None:
            return {}
        return {"prompt_logprobs": prompt_logprobs(scored_prompt(self._prompts[position], output))}

    def _echo(self, position: int, output: SampleOutput) -> str:
        """The text of a prompt, the first time that it is asked for."""
        if not self._request.echo or position in self._echoed:
            return ""
        self._echoed.add(position)
        prompt = self._prompts[position]
        first = position * self._request.num_samples
        if self._request.logprobs is not None:
            scored = scored_prompt(prompt, output)
            for choice in self._choices[first : first + self._request.num_samples]:
                choice.scored = list(scored)
        return self._encoder.decode(prompt)

    def _feed(self, choice: _Choice, sequence: SampledSequence) -> str:
        if self._request.limit == 0:
            return ""
        tokens = sequence.tokens_T.tolist()
        choice.tokens += tokens
        choice.shaped.add(sequence)
        scored = scored_sample(sequence)
        if sequence.is_stopped and not sequence.is_grammar_end and self._texts.is_special(tokens[-1]):
            del tokens[-1], scored[-1]
        choice.scored += scored
        for token in tokens:
            choice.text.add(token)
        return self._said(choice, choice.text.text.rstrip(UNFINISHED))

    def _finish(self, choice: _Choice) -> str:
        choice.is_ended = True
        return self._said(choice, choice.text.text) + choice.cutter.finish()

    def _said(self, choice: _Choice, text: str) -> str:
        new = text[choice.num_given :]
        choice.num_given += len(new)
        return choice.cutter.feed(new)

    def _chunk(self, index: int, text: str, *, finish_reason: str | None = None) -> dict[str, Any]:
        chunk = {**self._head, "choices": [self._choice(index, text, finish_reason)]}
        if not self._request.includes_usage:
            return chunk
        return {**chunk, "usage": self._usage() if self._request.counts_usage else None}

    def _choice(self, index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
        choice = self._choices[index]
        logprobs = None
        if self._request.logprobs is not None:
            logprobs = choice.logprobs.next(choice.scored)
            choice.scored = []
        said = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}
        if self._request.return_token_ids:
            said["token_ids"], choice.tokens = choice.tokens, []
            said |= choice.shaped.next()
            if not choice.is_begun:
                said["prompt_token_ids"] = [*choice.prompt]
        choice.is_begun = True
        return said

    def _count(self, position: int, output: SampleOutput) -> None:
        for index, sequence in enumerate(output.sequences, start=position * self._request.num_samples):
            self._choices[index].num_sampled = len(sequence.tokens_T) if self._request.limit else 0
        self._num_reused += output.num_reused_tokens

    def _usage(self) -> dict[str, Any]:
        num_sampled = sum(choice.num_sampled for choice in self._choices)
        return usage(sum(map(len, self._prompts)), num_sampled, self._num_reused)


def _reason(choice: _Choice, sequence: SampledSequence) -> str:
    return "stop" if sequence.is_stopped or choice.cutter.is_cut else "length"
