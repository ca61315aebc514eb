"""Settings of evaluation: evaluators by name, benchmarks that are files, and the judge of what no rule can grade."""

from collections.abc import Sequence
from typing import Any

import chz

from cookhouse.naming import names_in
from cookhouse.settings.facts import NamesWeights, facts
from cookhouse.settings.reading import read_if

BENCHMARK_FILES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
"""Suffixes of files that are benchmarks by themselves."""


EVALUATOR_SETTINGS = ("evaluators", "infrequent_evaluators")


def named_evaluators(config: Any) -> list[str]:
    """Names of the evaluators that settings ask for, benchmarks among them."""
    return [name for setting in EVALUATOR_SETTINGS for name in names_in(getattr(config, setting, ""))]


def _is_measured(config: Any) -> bool:
    """Evaluators of a user's own get the settings, too, and may read them. A spec alone says nothing of it."""
    return bool(getattr(config, "num_eval", 1) or named_evaluators(config))


WITH_HELD_OUT = read_if(_is_measured, "with num_eval above 0")
"""Of what is read where something held out is measured."""


def benchmark_files(config: Any, settings: Sequence[str] = (*EVALUATOR_SETTINGS, "benchmark")) -> list[str]:
    """The files among the benchmarks that settings name."""
    texts = (getattr(config, name, "") for name in settings)
    return [name for text in texts for name in names_in(text) if name.lower().endswith(BENCHMARK_FILES)]


def judge_setting(address: str | None = None) -> Any:
    """Setting of the judge that grades what no rule can; `address` is the setting that names another service, where
    that has the model.
    """
    return chz.field(
        default=None,
        doc="Who compares answers with those of a benchmark's file that has match=judge: a run directory, a tinker:// "
        "path, a registered model, a base model, or whoever the run's completer opens by that name; default: nobody.",
        validator=read_if(benchmark_files, "with a file among the benchmarks"),
        metadata=facts(weights=NamesWeights(port="completer", address=address)),
    )
