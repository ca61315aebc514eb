"""Settings: small frozen specs that components take, and of which a recipe's config is made, by inheritance.

A config *is* every spec that it is made of, so that it is handed on as it is: nothing is copied, and a setting has one
name from the command line to the line that uses it. A component names in its signature the spec that it reads.
"""

from cookhouse.settings.advantages import AdvantageSettings
from cookhouse.settings.benchmarks import EvalSettings
from cookhouse.settings.checks import above, at_least, between, within
from cookhouse.settings.defaults import Default, always, computed, default_in_words, has_default, part_of, redefault
from cookhouse.settings.distillation import (
    OffPolicyDistillationSettings,
    OnPolicyDistillationSettings,
    TeacherLossSettings,
)
from cookhouse.settings.facts import Alias, NamesWeights, facts
from cookhouse.settings.optimizer import AdamSettings, OptimizerSettings, rate
from cookhouse.settings.preference import PairLossSettings, PreferenceSettings, ReferenceSettings
from cookhouse.settings.preference_model import JudgeSettings, PreferenceModelSettings, TournamentSettings
from cookhouse.settings.published import (
    by_model,
    default_origin,
    defaults_taken,
    is_embedded,
    published_model,
    published_model_of,
)
from cookhouse.settings.reading import ReadIf, narrowed, read_if, unread_defaults
from cookhouse.settings.reinforcement import (
    EnvironmentSettings,
    GradingSettings,
    GroupSettings,
    LossSettings,
    ReinforcementSettings,
    RolloutTrainingSettings,
    UpdateSettings,
    sets_clip,
)
from cookhouse.settings.rollouts import RolloutLimits, RolloutStrategy, SamplingSettings
from cookhouse.settings.rows import BUNDLED, ROWS_FIELDS, RowSettings, columns_setting
from cookhouse.settings.supervised import SupervisedSettings
from cookhouse.settings.training import (
    AdapterSettings,
    ModelSettings,
    RegistrationSettings,
    RunSettings,
    ShrinkSettings,
    StepSettings,
    TrainingSettings,
)

__all__ = [
    "BUNDLED",
    "ROWS_FIELDS",
    "AdamSettings",
    "AdapterSettings",
    "AdvantageSettings",
    "Alias",
    "Default",
    "EnvironmentSettings",
    "EvalSettings",
    "GradingSettings",
    "GroupSettings",
    "JudgeSettings",
    "LossSettings",
    "ModelSettings",
    "NamesWeights",
    "OffPolicyDistillationSettings",
    "OnPolicyDistillationSettings",
    "OptimizerSettings",
    "PairLossSettings",
    "PreferenceModelSettings",
    "PreferenceSettings",
    "ReadIf",
    "ReferenceSettings",
    "RegistrationSettings",
    "ReinforcementSettings",
    "RolloutLimits",
    "RolloutStrategy",
    "RolloutTrainingSettings",
    "RowSettings",
    "RunSettings",
    "SamplingSettings",
    "ShrinkSettings",
    "StepSettings",
    "SupervisedSettings",
    "TeacherLossSettings",
    "TournamentSettings",
    "TrainingSettings",
    "UpdateSettings",
    "above",
    "always",
    "at_least",
    "between",
    "by_model",
    "columns_setting",
    "computed",
    "default_in_words",
    "default_origin",
    "defaults_taken",
    "facts",
    "has_default",
    "is_embedded",
    "narrowed",
    "part_of",
    "published_model",
    "published_model_of",
    "rate",
    "read_if",
    "redefault",
    "sets_clip",
    "unread_defaults",
    "within",
]
