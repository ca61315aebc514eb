"""Prompts of preferences, answered in tournaments that a preference model judges."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import chz

from cookhouse.assets import data_file
from cookhouse.chat import Comparison, ComparisonRenderer, text_of
from cookhouse.data import (
    DataSource,
    FileSource,
    build_renderer,
    comparison_from_row,
    data_source,
    held_out_source,
    iter_rows,
    parse_each,
    prompt_from_row,
    swapped,
)
from cookhouse.envs.dataset import EnvConfig, GroupDataset
from cookhouse.envs.problems.tournament import AskedPrompt, TournamentGroupBuilder
from cookhouse.envs.second_model import OpenSampler, SecondModelSpec
from cookhouse.errors import InputError
from cookhouse.grading import (
    CompleterPreferenceModel,
    GenerativePreferenceModel,
    Judgment,
    NamedGrader,
    PreferenceModel,
)
from cookhouse.settings import TournamentSettings

_MAX_REMEMBERED = 100_000
"""Judgments; one is some hundred bytes."""


class SharedPreferenceModel:
    """A preference model for all groups of a run, asked about so many comparisons at a time, and about each once: its
    weights do not change. What failed is asked again.
    """

    def __init__(self, model: PreferenceModel, *, max_concurrent: int) -> None:
        self._model = model
        self._slots = asyncio.Semaphore(max_concurrent)
        self._remembered: dict[bytes, Judgment] = {}

    async def __call__(self, comparison: Comparison) -> Judgment:
        """As the model's own."""
        key = hashlib.blake2b(repr(comparison).encode(), digest_size=16).digest()
        if (known := self._remembered.get(key)) is not None:
            return known
        async with self._slots:
            judgment = await self._model(comparison)
        if len(self._remembered) < _MAX_REMEMBERED:
            self._remembered[key] = judgment
        return judgment


@chz.chz
class TournamentConfig(EnvConfig, TournamentSettings):
    """Tournaments of answers to the prompts of preferences, comparisons or prompts alone."""

    async def build(
        self, open_sampler: OpenSampler | None = None
    ) -> tuple[GroupDataset[AskedPrompt], GroupDataset[AskedPrompt] | None]:
        """Prompts to train on, and held-out preferences. Prompts that are held out are not trained on.

        Raises:
            InputError: nobody is named to compare, or the data cannot be used.
        """
        rule = None if self.rule is None else NamedGrader(self.rule)
        train_source, test_source = self._sources()
        test = (
            []
            if test_source is None
            else parse_each(iter_rows(test_source), lambda row: _held_out(row.value(), row.place))
        )
        held_out = {_key(prompt) for prompt in test}
        read = parse_each(iter_rows(train_source), lambda row: _prompt(row.value(), row.place))
        train = [prompt for key, prompt in {_key(prompt): prompt for prompt in read}.items() if key not in held_out]
        if not train:
            raise InputError(f"{train_source} holds no prompt that is not held out; there is nothing to train on")
        make = partial(
            TournamentGroupBuilder,
            prompting=self.prompting,
            model=await self._open_model(open_sampler),
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
        if self.dataset_path in (None, "bundled"):
            train: DataSource = FileSource(path=data_file("preferences/train.jsonl"))
            test: DataSource | None = FileSource(path=data_file("preferences/test.jsonl"))
        else:
            train = data_source(self.dataset_path)
            test = held_out_source(train)
        return train, test if self.test_path is None else data_source(self.test_path)

    async def _open_model(self, open_sampler: OpenSampler | None) -> PreferenceModel:
        name = self.preference_model
        if name is None:
            raise InputError(
                "preference_model names nobody who compares answers; train one with `cookhouse run preference_model`, "
                "and name its run folder"
            )
        if open_sampler is None:
            raise InputError(f"preference_model is {name!r}, and there is no service to ask it at")
        brought = SecondModelSpec(model_name=name, answer_tokens=1).brought(open_sampler)
        if brought is not None:
            return self._shared(CompleterPreferenceModel(brought))
        base, chat_format = preference_format(self)
        renderer = ComparisonRenderer(build_renderer(base, chat_format, force=self.force_renderer))
        return self._shared(GenerativePreferenceModel(renderer, await open_sampler(name)))

    def _shared(self, model: PreferenceModel) -> PreferenceModel:
        return SharedPreferenceModel(model, max_concurrent=self.max_concurrent_comparisons)


def preference_format(config: TournamentSettings) -> tuple[str, str | None]:
    """Base model and chat format in which the preference model is asked; None: the base model's own."""
    base = config.preference_base_model or config.model_name
    return base, config.preference_renderer or (config.renderer_name if base == config.model_name else None)


def _prompt(row: object, source: str) -> AskedPrompt:
    compares = isinstance(row, Mapping) and ("chosen" in row or "completion_a" in row or "comparison" in row)
    prompt: Any = comparison_from_row(row, source) if compares else prompt_from_row(row, source)
    return AskedPrompt(messages=prompt.prompt)


def _held_out(row: object, source: str) -> AskedPrompt:
    comparison = comparison_from_row(row, source)
    better = swapped(comparison) if comparison.label == "B" else comparison
    references = tuple(_text(said) for said in (better.completion_a, better.completion_b))
    if not all(references):
        raise InputError(f"{source}: an answer is empty; what is held out needs two to compare with")
    return AskedPrompt(messages=better.prompt, references=references)


def _text(said: Sequence[Any]) -> str:
    return text_of(said[-1]).strip()


def _key(prompt: AskedPrompt) -> str:
    return repr(prompt.messages)
