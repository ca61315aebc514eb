"""Prompts of preferences, answered in tournaments that a preference model judges."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import chz

from cookhouse.assets import data_file
from cookhouse.chat import Renderer, text_of
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
from cookhouse.envs.problems.tournament import TournamentGroupBuilder, TournamentPrompt
from cookhouse.envs.second_model import OpenSampler
from cookhouse.errors import InputError
from cookhouse.grading import NamedGrader
from cookhouse.settings import TournamentSettings


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
