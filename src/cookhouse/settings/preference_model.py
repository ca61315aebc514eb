"""Settings of preference models, and of reinforcement learning by one."""

from typing import Literal

import chz

from cookhouse.settings.checks import at_least
from cookhouse.settings.defaults import redefault
from cookhouse.settings.facts import NamesWeights, facts
from cookhouse.settings.judge import WITH_HELD_OUT
from cookhouse.settings.reading import narrowed, read_if
from cookhouse.settings.reinforcement import EnvironmentSettings
from cookhouse.settings.rows import RowSettings, columns_setting
from cookhouse.settings.training import ModelSettings, TrainingSettings


@chz.chz
class PreferenceModelSettings(TrainingSettings, RowSettings):
    """Settings of a run that trains a model to say which of two answers is better."""

    help_title = "What is learned"

    batch_size: int = chz.field(default=256, doc="Examples per step.", validator=at_least(1))
    swap: bool = chz.field(
        default=True, doc="Train on each comparison in both orders of its answers; else in one, drawn by the seed."
    )
    ties: Literal["label", "skip", "refuse"] = chz.field(
        default="label",
        doc="Comparisons without a better answer: label: Tie is learned; skip: they are left out; refuse: they are bad "
        "rows.",
    )
    max_length: int = redefault(RowSettings, "max_length", 16384)
    eval_max_tokens: int = narrowed(
        RowSettings, "eval_max_tokens", read_if(lambda _: False, "by recipes whose held-out prompts are answered")
    )


_WITH_JUDGE = read_if(lambda config: config.preference_model is not None, "with preference_model")


@chz.chz
class JudgeSettings(ModelSettings):
    """Settings of the judge that says which of two answers is better."""

    help_title = "Preference model"

    preference_model: str | None = chz.field(
        default=None,
        doc="Who compares answers: a run directory, a tinker:// path, a registered model, a base model, or whoever the "
        "run's completer opens by that name; default: nobody.",
        metadata=facts(weights=NamesWeights(port="completer")),
    )
    preference_base_model: str | None = chz.field(
        default=None,
        doc="Base model of the preference model; default: the same as of the one that is trained.",
        validator=_WITH_JUDGE,
    )
    preference_renderer: str | None = chz.field(
        default=None,
        doc="Its chat format; default: that of the model that is trained, or the other base model's own.",
        validator=_WITH_JUDGE,
    )
    max_concurrent_comparisons: int = chz.field(
        default=64, doc="Comparisons of a run that are asked at a time.", validator=[at_least(1), _WITH_JUDGE]
    )


@chz.chz
class TournamentSettings(EnvironmentSettings, JudgeSettings):
    """Settings by which the answers of a group are compared with each other."""

    help_title = "Preference model"

    dataset_path: str | None = chz.field(
        default=None,
        doc="Prompts: a file, folder, hub id or known name. Preferences and comparisons give their prompts.",
        metadata=facts(aliases=("dataset",)),
    )
    test_path: str | None = chz.field(
        default=None,
        doc="Held-out preferences; default: those that the data holds out. The model's answers are compared "
        "with theirs.",
    )
    columns: str = columns_setting()
    tournament: Literal["all_pairs", "rounds"] = chz.field(
        default="all_pairs",
        doc="all_pairs: every answer of a group meets every other; rounds: as many rounds as num_rounds, each with a "
        "drawn opponent.",
    )
    num_rounds: int = chz.field(
        default=1,
        doc="Opponents that each answer meets, with tournament=rounds.",
        validator=[
            at_least(1),
            read_if(lambda config: config.tournament == "rounds", "with tournament=rounds", idle=[1]),
        ],
    )
    rule: str | None = chz.field(
        default=None,
        doc="Grader of held-out answers beside the preference model, which is not trained on: polite, exact, math, or "
        "your own as module:name or file.py:name; default: none.",
        validator=WITH_HELD_OUT,
    )
