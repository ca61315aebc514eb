"""Exact match of greedy answers to held-out conversations."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import tinker

from cookhouse.chat import Message, Renderer, Termination, text_of
from cookhouse.data import Conversation, parse_each
from cookhouse.errors import InputError
from cookhouse.evals.evaluator import Metrics, SamplingClientEvaluator
from cookhouse.evals.scores import Averaging, classification, is_exact_match, mean, standard_error
from cookhouse.sampling_client import SampleClient, sample_one

SHORT_TOKENS = 8
"""Tokens of an answer, at most, that a model which has learned it is likely to give letter by letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutAnswer:
    """One held-out conversation, what was expected last, and what the model said."""

    prompt: Sequence[Message]
    expected: str
    answer: str
    is_correct: bool
    termination: Termination
    group: str | None
    """Value of the key to report by, if the conversation has it."""
    is_whole: bool = True
    """Whether it is text alone, without calls of tools."""
    is_truncated: bool = False
    """Whether `max_tokens` ended it."""


class ExactMatchEvaluator(SamplingClientEvaluator):
    """Share of conversations whose last assistant message the model, asked greedily, writes letter by letter.

    With `labels`, the classes that the expected messages are of, the answers are scored as classes, too; one that is
    none of them is a miss.

    Both are read by the renderer, so that thinking does not count, nor does whitespace around the text. At most
    `concurrency` requests are in flight; a failing one fails the evaluation. `answers` holds those of the last call, in
    the order of the conversations.

    With `context_tokens`, what the model takes at most, an answer gets what its prompt leaves, and conversations whose
    prompt leaves nothing are not asked; `notes` says of how many that is true.

    Raises:
        InputError: there are no conversations, or no prompt leaves room for an answer.
        BadRowsError: some do not end in an assistant message of text after another message.
    """

    def __init__(
        self,
        conversations: Sequence[Conversation],
        renderer: Renderer,
        *,
        max_tokens: int,
        context_tokens: int | None = None,
        concurrency: int = 64,
        group_by: str | None = None,
        labels: Sequence[str] | None = None,
        averaging: Averaging = "macro",
    ) -> None:
        if not conversations:
            raise InputError("there are no held-out conversations to answer")
        self.answers: Sequence[HeldOutAnswer] = ()
        self._cases = parse_each(conversations, lambda conversation: _case(conversation, renderer, group_by))
        self.notes: Sequence[str] = ()
        self._renderer = renderer
        self._max_tokens = max_tokens
        self._context_tokens = context_tokens
        if context_tokens is not None:
            self._fit(context_tokens)
        self._concurrency = concurrency
        self._labels = labels
        self._averaging: Averaging = averaging

    @property
    def is_telling(self) -> bool:
        """True if at least half of the expected answers have no more than `SHORT_TOKENS` tokens. Longer ones are right
        in other words, too, so that their exact match stays near 0 whatever is learned.
        """
        encode = self._renderer.encoder.encode
        num_short = sum(len(encode([case.expected])) <= SHORT_TOKENS for case in self._cases)
        return 2 * num_short >= len(self._cases)

    @property
    def longest_tokens(self) -> int:
        """Of a prompt with its answer, at most."""
        return max(case.prompt_tokens.length + self._answer_tokens(case) for case in self._cases)

    async def __call__(self, client: SampleClient) -> Metrics:
        """`exact_match`, its `exact_match_stderr` (None of one), `exact_match_n`, the shares of `malformed` and of
        `truncated` answers, and `exact_match/{group}` for each group; with labels also `accuracy` of `accuracy_n`, and
        `precision`, `recall` and `f1` by the `averaging` that stands next to them.
        """
        slots = asyncio.Semaphore(self._concurrency)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._answer(client, case, slots)) for case in self._cases]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        self.answers = [task.result() for task in tasks]
        return {**_metrics(self.answers), **self._class_metrics()}

    def _class_metrics(self) -> Metrics:
        if self._labels is None:
            return {}
        # One that is no whole answer is of no class, whatever its text.
        predicted = [answer.answer.strip() if answer.is_whole else None for answer in self.answers]
        expected = [answer.expected.strip() for answer in self.answers]
        scores = classification(predicted, expected, averaging=self._averaging, labels=self._labels)
        return {
            "accuracy": scores.accuracy,
            "accuracy_n": float(scores.n),
            "precision": scores.precision,
            "recall": scores.recall,
            "f1": scores.f1,
            "averaging": scores.averaging,
        }

    async def _answer(self, client: SampleClient, case: "_Case", slots: asyncio.Semaphore) -> HeldOutAnswer:
        async with slots:
            params = tinker.SamplingParams(
                max_tokens=self._answer_tokens(case), temperature=0.0, stop=self._renderer.get_stop_sequences()
            )
            sequence = await sample_one(client, case.prompt_tokens, params)
        message, termination = self._renderer.parse_response(sequence.tokens)
        answer = text_of(message)
        is_whole = not message.get("tool_calls") and not message.get("unparsed_tool_calls")
        return HeldOutAnswer(
            prompt=case.prompt,
            expected=case.expected,
            answer=answer,
            is_correct=is_whole and is_exact_match(answer, case.expected),
            is_whole=is_whole,
            is_truncated=termination is Termination.MALFORMED and len(sequence.tokens) >= self._answer_tokens(case),
            termination=termination,
            group=case.group,
        )

    def _answer_tokens(self, case: "_Case") -> int:
        if self._context_tokens is None:
            return self._max_tokens
        return min(self._max_tokens, self._context_tokens - case.prompt_tokens.length)

    def _fit(self, context_tokens: int) -> None:
        """Leave out cases whose prompt leaves no room, and note whose answers get less than was asked for."""
        fitting = [case for case in self._cases if case.prompt_tokens.length < context_tokens]
        if not fitting:
            raise InputError(
                f"the prompts of all {len(self._cases)} held-out conversations are longer than the {context_tokens:,} "
                "tokens that the model takes with its answer; shorten them, or set num_eval=0"
            )
        num_all, self._cases = len(self._cases), fitting
        num_cut = sum(self._answer_tokens(case) < self._max_tokens for case in fitting)
        self.notes = [
            f"{number} of {num_all} held-out conversations {what}: the model takes {context_tokens:,} tokens in all"
            for number, what in (
                (num_all - len(fitting), "are not answered in evaluations, since their prompts leave no room"),
                (num_cut, f"are answered with fewer than {self._max_tokens} tokens"),
            )
            if number
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    prompt: Sequence[Message]
    prompt_tokens: tinker.ModelInput
    expected: str
    group: str | None


def _case(conversation: Conversation, renderer: Renderer, group_by: str | None) -> _Case:
    if not conversation.has_answer:
        raise _no_answer(conversation)
    *prompt, last = conversation.messages
    group = conversation.extra.get(group_by) if group_by else None
    try:
        prompt_tokens = renderer.build_generation_prompt(prompt)
        renderer.check_trained(last)
        expected = text_of(renderer.read_back(conversation.messages))
    except InputError as error:
        raise InputError(f"{conversation.source}: {error}") from error
    if not expected.strip():
        raise _no_answer(conversation)
    return _Case(
        prompt=prompt,
        prompt_tokens=prompt_tokens,
        expected=expected,
        group=None if group is None else str(group),
    )


def _no_answer(conversation: Conversation) -> InputError:
    return InputError(
        f"{conversation.source}: a held-out conversation must end in an assistant message of text, after at least one "
        "other message"
    )


def _metrics(answers: Sequence[HeldOutAnswer]) -> Metrics:
    correct = [float(answer.is_correct) for answer in answers]
    metrics: dict[str, float | None] = {
        "exact_match": mean(correct),
        "exact_match_stderr": standard_error(correct),
        "exact_match_n": float(len(correct)),
        "malformed": mean([float(answer.termination == Termination.MALFORMED) for answer in answers]),
        "truncated": mean([float(answer.is_truncated) for answer in answers]),
    }
    for group in sorted({answer.group for answer in answers if answer.group is not None}):
        metrics[f"exact_match/{group}"] = mean([float(a.is_correct) for a in answers if a.group == group])
    return metrics
