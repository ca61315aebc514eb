"""Samples of a teacher, to be trained on: asked for a batch at a time, and kept in a file where they are to be used
again.

Legend: T tokens of an answer.
"""

import asyncio
import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tinker

from cookhouse.chat import Renderer, text_of
from cookhouse.errors import CookhouseError, InputError
from cookhouse.files import append_line, whole_lines
from cookhouse.sampling_client import SampleClient
from cookhouse.settings import OffPolicyDistillationSettings
from cookhouse.training import service_errors
from cookhouse.workflows.distillation.questions import TeacherQuestion

SAMPLES, DROPPED = "distill/samples", "distill/dropped"
_CONCURRENCY = 64
Failure = Literal["request", "empty", "cut", "unmatched"]
"""Why an answer is not trained on: it could not be asked for, says nothing, did not end by itself, or does not have
what `answer_pattern` looks for."""


@dataclass(frozen=True, kw_only=True)
class TeacherAnswer:
    """One answer of a teacher, or why there is none to train on."""

    tokens: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    """Of each token under what it was sampled from; empty where the service gave none."""
    text: str = ""
    """What it says, of which `answer_pattern` has taken its part."""
    failed: Failure | None = None
    reason: str = ""


class AnswerExtractor:
    """Decides what of a sample is an answer to train on."""

    def __init__(self, renderer: Renderer, pattern: str | None) -> None:
        """Raises `InputError` for a pattern that is no regular expression."""
        self.renderer = renderer
        try:
            self._pattern = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise InputError(f"answer_pattern is {pattern!r}, which is no regular expression: {error}") from error

    def __call__(self, tokens: Sequence[int], logprobs: Sequence[float] | None, *, is_cut: bool) -> TeacherAnswer:
        """The answer in a sample; one that is empty, cut off, or without the pattern has failed."""
        message, _ = self.renderer.parse_response(tokens)
        text = text_of(message)
        if not text.strip():
            return TeacherAnswer(failed="empty", reason="it says nothing")
        if is_cut:
            return TeacherAnswer(failed="cut", reason=f"it does not end within {len(tokens)} tokens")
        if self._pattern is None:
            return TeacherAnswer(tokens=list(tokens), logprobs=list(logprobs or ()), text=text)
        found = self._pattern.search(text)
        part = "" if found is None else (found[1] if self._pattern.groups else found[0])
        if not (part or "").strip():
            return TeacherAnswer(failed="unmatched", reason=f"{text[:80]!r} has nothing that answer_pattern looks for")
        return TeacherAnswer(text=part)


class TeacherSampler:
    """Asks a teacher. What it said is kept in `cache`, if there is one, and is then the same in every epoch and after a
    resume; without one it is asked anew in each epoch, with seeds that hang on the epoch.
    """

    def __init__(
        self,
        client: SampleClient,
        reader: AnswerExtractor,
        settings: OffPolicyDistillationSettings,
        *,
        context_tokens: int | None = None,
        cache: Path | None = None,
    ) -> None:
        """`context_tokens`: what the teacher takes, prompt and answer together; None: nobody knows. Raises `InputError`
        where the file does not hold what this class wrote.
        """
        self._client = client
        self._reader = reader
        self._settings = settings
        self._context_tokens = context_tokens
        self._cache = cache
        self._known = {} if cache is None else _read(cache)
        self._slots = asyncio.Semaphore(_CONCURRENCY)

    async def __call__(self, questions: Sequence[TeacherQuestion], epoch: int) -> list[list[TeacherAnswer]]:
        """Of each question, `samples_per_prompt` answers, the failed ones among them."""
        keys = [self._key(question, epoch) for question in questions]
        missing = {key: question for key, question in zip(keys, questions, strict=True) if key not in self._known}
        async with asyncio.TaskGroup() as tasks:
            asking = {key: tasks.create_task(self._ask(key, question)) for key, question in missing.items()}
        found = {key: task.result() for key, task in asking.items()}
        if self._cache is None:
            return [found[key] for key in keys]
        # What could not be asked for may be asked again: by a later epoch, or after a resume.
        lasting = {key: said for key, said in found.items() if all(each.failed != "request" for each in said)}
        if lasting:
            rows = {key: [asdict(each) for each in said] for key, said in lasting.items()}
            await asyncio.to_thread(append_line, self._cache, json.dumps(rows))
        self._known |= lasting
        return [self._known.get(key) or found[key] for key in keys]

    def _key(self, question: TeacherQuestion, epoch: int) -> str:
        """A digest of all that an answer hangs on, but for the teacher itself."""
        settings = self._settings
        asked = [settings.samples_per_prompt, settings.max_tokens, settings.temperature, settings.answer_pattern]
        content = [*asked, settings.seed, question.number, epoch if self._cache is None else None]
        text = json.dumps([content, list(question.teacher_tokens)])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def _room(self, num_prompt_tokens: int) -> int:
        """Tokens that an answer may have; a prompt that leaves none is for the service to refuse."""
        if self._context_tokens is None:
            return self._settings.max_tokens
        return max(1, min(self._settings.max_tokens, self._context_tokens - num_prompt_tokens))

    async def _ask(self, key: str, question: TeacherQuestion) -> list[TeacherAnswer]:
        settings = self._settings
        params = tinker.SamplingParams(
            max_tokens=self._room(len(question.teacher_tokens)),
            temperature=settings.temperature,
            stop=self._reader.renderer.get_stop_sequences(),
            seed=int(np.random.SeedSequence(int(key, 16)).generate_state(1)[0]),
        )
        prompt = tinker.ModelInput.from_ints(list(question.teacher_tokens))
        try:
            async with self._slots:
                with service_errors(f"asking the teacher {question.row.source}"):
                    response = await self._client.sample(prompt, settings.samples_per_prompt, params)
        except CookhouseError as error:
            return [TeacherAnswer(failed="request", reason=str(error))] * settings.samples_per_prompt
        answers = [
            self._reader(sequence.tokens, sequence.logprobs, is_cut=sequence.stop_reason == "length")
            for sequence in response.sequences[: settings.samples_per_prompt]
        ]
        missing = TeacherAnswer(failed="request", reason="the service gave fewer answers than it was asked for")
        return [*answers, *[missing] * (settings.samples_per_prompt - len(answers))]


def count_failures(answers: Sequence[TeacherAnswer]) -> dict[str, float]:
    """`distill/samples`, `distill/dropped` and, for each reason there is, `distill/dropped/{reason}`."""
    failed = Counter(answer.failed for answer in answers if answer.failed is not None)
    return {
        SAMPLES: float(len(answers)),
        DROPPED: float(failed.total()),
        **{f"{DROPPED}/{reason}": float(count) for reason, count in sorted(failed.items())},
    }


def refuse_all_failed(answers: Sequence[TeacherAnswer], what: str) -> None:
    """Raises `InputError` if nothing is left to train on or to compare with."""
    if all(answer.failed is not None for answer in answers):
        raise InputError(
            f"all {len(answers)} answers of the teacher {what} failed; the first: {answers[0].reason or 'none'}"
        )


Known = dict[str, list[TeacherAnswer]]


def _read(cache: Path) -> Known:
    known: Known = {}
    for number, line in enumerate(whole_lines(cache), start=1):
        try:
            known |= {str(key): [TeacherAnswer(**row) for row in rows] for key, rows in json.loads(line).items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(
                f"{cache}, line {number}, holds no answers of a teacher ({error}); remove the file, and it is asked "
                "again"
            ) from error
    return known
