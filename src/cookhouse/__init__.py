"""cookhouse: fine-tune language models by recipe.

    import cookhouse

    result = cookhouse.run("supervised", {"dataset_path": "mine.jsonl"})

What a user needs to run recipes and to bring parts of their own. Each name is loaded when it is first asked for:
importing this loads neither the SDK nor a model.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cookhouse.version import __version__

if sys.platform == "win32":
    raise ImportError("cookhouse does not run on Windows; use it inside WSL (https://learn.microsoft.com/windows/wsl)")

if TYPE_CHECKING:
    from cookhouse.adapters import Adapters
    from cookhouse.envs import EnvConfig, ProblemEnv, message_environments
    from cookhouse.errors import CookhouseError, InputError, ServiceError
    from cookhouse.evals import SamplingClientEvaluator, TrainingClientEvaluator
    from cookhouse.recipes import (
        Experiment,
        Recipe,
        dry_run,
        find_recipe,
        read_experiment,
        run,
        run_async,
        sweep,
        write_experiment,
    )
    from cookhouse.rl import (
        Env,
        EnvGroupBuilder,
        MessageEnv,
        MessageStepResult,
        RLDataset,
        RLDatasetBuilder,
        StepResult,
    )
    from cookhouse.settings import EnvironmentSettings, ReinforcementSettings, RunSettings, SupervisedSettings
    from cookhouse.telemetry import Event, Metric, MetricsRow, Record, Sink, Span, declare_metric, note, scope, table
    from cookhouse.training import save_checkpoint, save_checkpoint_async
    from cookhouse.weights.checkpoints import get_last_checkpoint
    from cookhouse.workflows import (
        Stage,
        SupervisedState,
        Workflow,
        reinforcement_workflow,
        stage,
        supervised_workflow,
    )

_PLACES = {
    "cookhouse.adapters": ("Adapters",),
    "cookhouse.envs": ("EnvConfig", "ProblemEnv", "message_environments"),
    "cookhouse.errors": ("CookhouseError", "InputError", "ServiceError"),
    "cookhouse.evals": ("SamplingClientEvaluator", "TrainingClientEvaluator"),
    "cookhouse.recipes": (
        "Experiment",
        "Recipe",
        "dry_run",
        "find_recipe",
        "read_experiment",
        "run",
        "run_async",
        "sweep",
        "write_experiment",
    ),
    "cookhouse.rl": (
        "Env",
        "EnvGroupBuilder",
        "MessageEnv",
        "MessageStepResult",
        "RLDataset",
        "RLDatasetBuilder",
        "StepResult",
    ),
    "cookhouse.settings": ("EnvironmentSettings", "ReinforcementSettings", "RunSettings", "SupervisedSettings"),
    "cookhouse.telemetry": (
        "Event",
        "Metric",
        "MetricsRow",
        "Record",
        "Sink",
        "Span",
        "declare_metric",
        "note",
        "scope",
        "table",
    ),
    "cookhouse.training": ("save_checkpoint", "save_checkpoint_async"),
    "cookhouse.weights.checkpoints": ("get_last_checkpoint",),
    "cookhouse.workflows": (
        "Stage",
        "SupervisedState",
        "Workflow",
        "reinforcement_workflow",
        "stage",
        "supervised_workflow",
    ),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "Adapters",
    "CookhouseError",
    "Env",
    "EnvConfig",
    "EnvGroupBuilder",
    "EnvironmentSettings",
    "Event",
    "Experiment",
    "InputError",
    "MessageEnv",
    "MessageStepResult",
    "Metric",
    "MetricsRow",
    "ProblemEnv",
    "RLDataset",
    "RLDatasetBuilder",
    "Recipe",
    "Record",
    "ReinforcementSettings",
    "RunSettings",
    "SamplingClientEvaluator",
    "ServiceError",
    "Sink",
    "Span",
    "Stage",
    "StepResult",
    "SupervisedSettings",
    "SupervisedState",
    "TrainingClientEvaluator",
    "Workflow",
    "__version__",
    "declare_metric",
    "dry_run",
    "find_recipe",
    "get_last_checkpoint",
    "message_environments",
    "note",
    "read_experiment",
    "reinforcement_workflow",
    "run",
    "run_async",
    "save_checkpoint",
    "save_checkpoint_async",
    "scope",
    "stage",
    "supervised_workflow",
    "sweep",
    "table",
    "write_experiment",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
