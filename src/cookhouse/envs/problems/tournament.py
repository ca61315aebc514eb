"""Tournaments: answers to one prompt that a preference model compares with each other; the reward of each is what it
wins.

    group of answers ──pairs──► preference model, in both orders ──► score of each pair ──mean over its pairs──► reward

A pair's score is the probability that the first answer is better less that of the second, in [-1, 1], so that rewards
are those of tinker-cookbook's tournaments: wins less losses by the number of pairs. A held-out prompt is answered once,
and its answer compared with the two of its row. Each two texts are asked about once; a text draws with itself, and an
empty one loses to any other.
"""

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import chz
import tinker

from cookhouse.assets import data_file
from cookhouse.chat import Message, Renderer, Termination, text_of
from cookhouse.data import (
    DataSource,
    FileSource,
    comparison_from_row,
    data_source,
    held_out_source,
    iter_rows,
    parse_columns,
    parse_each,
    prompt_from_row,
)
from cookhouse.data.rows.comparisons import swapped
from cookhouse.envs.dataset import EnvConfig, GroupDataset
from cookhouse.envs.problems.judge import open_preference_model
from cookhouse.envs.prompting import Prompting, in_words
from cookhouse.envs.second_model import OpenSampler
from cookhouse.errors import InputError
from cookhouse.grading import Grader, Judgment, NamedGrader, PreferenceModel, compare_texts
from cookhouse.rl import Env, Metrics, StepResult, StopCondition, Trajectory
from cookhouse.settings import TournamentSettings
from cookhouse.telemetry import scope, table


@dataclass(frozen=True, slots=True, kw_only=True)
class TournamentPrompt:
    """A conversation to answer and, where it is held out, the answers that others gave: the better one first."""

    messages: Sequence[Message]
    references: tuple[str, ...] = ()


class AnswerEnv:
    """One answer to a conversation. Its reward is format_coef · (format − 1); `format` is 1 if it ended by itself."""

    def __init__(self, prompt: TournamentPrompt, prompting: Prompting, *, format_coef: float) -> None:
        self.answer = ""
        """What was answered, without thinking; empty until then."""
        self._prompt = prompt
        self._prompting = prompting
        self._format_coef = format_coef

    async def initial_observation(self) -> tuple[tinker.ModelInput, StopCondition]:
        renderer = self._prompting.renderer
        return renderer.build_generation_prompt(self._prompt.messages), renderer.get_stop_sequences()

    async def step(self, action: Sequence[int]) -> StepResult:
        renderer = self._prompting.renderer
        message, termination = renderer.parse_response(action)
        self.answer = text_of(message).strip()
        is_whole = float(termination != Termination.MALFORMED)
        better = self._prompt.references[:1]
        return StepResult(
            reward=self._format_coef * (is_whole - 1.0),
            episode_done=True,
            next_observation=tinker.ModelInput.empty(),
            next_stop_condition=renderer.get_stop_sequences(),
            metrics={"format": is_whole, "answer_characters": float(len(self.answer))},
            logs={
                "question": in_words(self._prompt.messages),
                "answer": self.answer,
                **({"expected": better[0]} if better else {}),
            },
        )


@dataclass(frozen=True, kw_only=True)
class TournamentGroupBuilder:
    """A group that answers one prompt."""

    prompt: TournamentPrompt
    prompting: Prompting
    model: PreferenceModel
    group_size: int
    num_rounds: int | None = None
    """Opponents that each answer meets at least; None: all others."""
    seed: int = 0
    """Of who meets whom."""
    format_coef: float = 1.0
    rule: Grader | None = None
    """Grades held-out answers in addition to the preference model."""

    async def make_envs(self) -> Sequence[Env]:
        return [AnswerEnv(self.prompt, self.prompting, format_coef=self.format_coef) for _ in range(self.group_size)]

    async def compute_group_rewards(
        self,
        trajectories_G: Sequence[Trajectory],  # noqa: ARG002
        envs_G: Sequence[Env],
    ) -> Sequence[tuple[float, Metrics]]:
        """Of each answer: its mean score. In a tournament `win_minus_loss`; of a held-out prompt also `win_share`,
        which is (1 + score) / 2, `win_share_chosen` and `win_share_rejected`, `rule`, and `agreement`, which is 1 where
        the answer's win share and what the rule says are on the same side of 1/2.

        Raises:
            Exception: of the preference model; a comparison that failed counts as none.
        """
        answers_G = [env.answer for env in envs_G if isinstance(env, AnswerEnv)]
        assert len(answers_G) == len(envs_G)
        if self.prompt.references:
            return [await self._held_out(answer) for answer in answers_G]
        return await self._tournament(answers_G)

    def logging_tags(self) -> Sequence[str]:
        return ["tournament"]

    async def _tournament(self, answers_G: Sequence[str]) -> Sequence[tuple[float, Metrics]]:
        pairs = meetings(len(answers_G), self.num_rounds, random.Random(f"{self.seed} {self.prompt.messages}"))
        judged = await self._judge((answers_G[i], answers_G[j]) for i, j in pairs)
        scores_G: list[list[float]] = [[] for _ in answers_G]
        for i, j in pairs:
            score = judged[answers_G[i], answers_G[j]].score
            scores_G[i].append(score)
            scores_G[j].append(-score)
        shared = _orders(judged)
        rewards_G = [sum(scores) / len(scores) if scores else 0.0 for scores in scores_G]
        return [(reward, {"win_minus_loss": reward, **shared}) for reward in rewards_G]

    async def _held_out(self, answer: str) -> tuple[float, Metrics]:
        references = self.prompt.references
        judged = await self._judge((answer, reference) for reference in references)
        scores = [judged[answer, reference].score for reference in references]
        score = sum(scores) / len(scores)
        win_share = (1 + score) / 2
        metrics = {
            "win_minus_loss": score,
            "win_share": win_share,
            "win_share_chosen": (1 + scores[0]) / 2,
            "win_share_rejected": (1 + scores[-1]) / 2,
            **_orders(judged),
        }
        if self.rule is not None:
            rule = await self.rule(answer, references[0])
            metrics |= {"rule": rule, "agreement": float((win_share > 0.5) == (rule > 0.5))}
        return score, metrics

    async def _judge(self, pairs: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], Judgment]:
        """The model's judgments on each two texts, all asked at once; noted side by side for whoever reads the page."""
        wanted = list(dict.fromkeys(pairs))
        asked = [pair for pair in wanted if (pair[1], pair[0]) not in wanted[: wanted.index(pair)]]
        try:
            async with asyncio.TaskGroup() as tasks:
                judging = {
                    pair: tasks.create_task(compare_texts(self.model, self.prompt.messages, *pair)) for pair in asked
                }
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        judged = {pair: task.result() for pair, task in judging.items()}
        _note(judged)
        return judged | {(b, a): _turned(judged[a, b]) for a, b in judged if (b, a) in wanted}


@chz.chz
class TournamentConfig(EnvConfig, TournamentSettings):
    """Tournaments of answers to the prompts of preferences, comparisons or prompts alone."""

    has_several_turns = False

    async def build(
        self, open_sampler: OpenSampler | None = None
    ) -> tuple[GroupDataset[TournamentPrompt], GroupDataset[TournamentPrompt] | None]:
        """Prompts to train on, and held-out preferences. Prompts that are held out are not trained on.

        Raises:
            InputError: nobody is named to compare, or the data cannot be used.
        """
        rule = None if self.rule is None else NamedGrader(self.rule)
        train_source, test_source = self._sources()
        test = (
            []
            if test_source is None
            else parse_each(
                iter_rows(test_source), lambda row: _held_out(row.value(), row.place, self.prompting.renderer)
            )
        )
        held_out = {_key(prompt) for prompt in test}
        read = parse_each(iter_rows(train_source), lambda row: _prompt(row.value(), row.place))
        train = [prompt for key, prompt in {_key(prompt): prompt for prompt in read}.items() if key not in held_out]
        if not train:
            raise InputError(f"{train_source} holds no prompt that is not held out; there is nothing to train on")
        make = partial(
            TournamentGroupBuilder,
            prompting=self.prompting,
            model=await open_preference_model(self, open_sampler),
            num_rounds=self.num_rounds if self.tournament == "rounds" else None,
            seed=self.seed,
            format_coef=self.format_coef,
            rule=rule,
        )
        return (
            self.train_set(train, lambda prompt: make(prompt=prompt, group_size=self.group_size)),
            self.test_set(test, lambda prompt: make(prompt=prompt, group_size=1)) if test else None,
        )

    def _sources(self) -> tuple[DataSource, DataSource | None]:
        columns = parse_columns(self.columns)
        if self.dataset_path in (None, "bundled"):
            train: DataSource = FileSource(path=data_file("preferences/train.jsonl"))
            test: DataSource | None = FileSource(path=data_file("preferences/test.jsonl"))
        else:
            train = data_source(self.dataset_path, columns=columns)
            test = held_out_source(train)
        return train, test if self.test_path is None else data_source(self.test_path, columns=columns)


def meetings(num_answers: int, num_rounds: int | None, rng: random.Random) -> list[tuple[int, int]]:
    """Pairs of a group's answers that meet: all of them each other, or each at least `num_rounds` others, at drawn
    distances around the circle of them. Each two meet once at most.
    """
    if num_rounds is None or num_rounds >= num_answers - 1:
        return list(combinations(range(num_answers), 2))
    distances = rng.sample(range(1, num_answers), num_rounds)
    drawn = {tuple(sorted((i, (i + distance) % num_answers))) for distance in distances for i in range(num_answers)}
    return sorted((pair[0], pair[1]) for pair in drawn)


def _turned(judgment: Judgment) -> Judgment:
    return Judgment(
        a=judgment.b,
        b=judgment.a,
        tie=judgment.tie,
        position_bias=judgment.position_bias,
        is_order_dependent=judgment.is_order_dependent,
    )


def _orders(judged: Mapping[tuple[str, str], Judgment]) -> Metrics:
    """Of the pairs that the model was asked about; nothing if there are none."""
    asked = [judgment for (a, b), judgment in judged.items() if a != b and a and b]
    if not asked:
        return {}
    return {
        "order_disagreement": sum(judgment.is_order_dependent for judgment in asked) / len(asked),
        "position_bias": sum(judgment.position_bias for judgment in asked) / len(asked),
    }


def _note(judged: Mapping[tuple[str, str], Judgment]) -> None:
    rows = [
        {"completion A": a, "completion B": b, "P(A)": f"{j.a:.3f}", "P(B)": f"{j.b:.3f}", "P(Tie)": f"{j.tie:.3f}"}
        for (a, b), j in judged.items()
        if a != b
    ]
    if rows:
        with scope("compared by the preference model"):
            table(rows)


def _prompt(row: object, source: str) -> TournamentPrompt:
    compares = isinstance(row, Mapping) and ("chosen" in row or "completion_a" in row or "comparison" in row)
    prompt: Any = comparison_from_row(row, source) if compares else prompt_from_row(row, source)
    return TournamentPrompt(messages=prompt.prompt)


def _held_out(row: object, source: str, renderer: Renderer) -> TournamentPrompt:
    comparison = comparison_from_row(row, source)
    better = swapped(comparison) if comparison.label == "B" else comparison
    try:
        read = [renderer.read_back([*better.prompt, *said]) for said in (better.completion_a, better.completion_b)]
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    references = tuple(text_of(message).strip() for message in read)
    if not all(references):
        raise InputError(f"{source}: an answer is empty; what is held out needs two to compare with")
    return TournamentPrompt(messages=better.prompt, references=references)


def _key(prompt: TournamentPrompt) -> str:
    return repr(prompt.messages)
