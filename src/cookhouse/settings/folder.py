"""Settings of what stands around a run: its folder, its sinks, its service and its registry."""

from typing import Any, Literal

import chz

from cookhouse.naming import names_in
from cookhouse.settings.checks import above
from cookhouse.settings.facts import facts, named_weights
from cookhouse.settings.reading import read_if

_NAMELESS_SINKS = {"terminal", "jsonl", "noop", "opentelemetry", "tensorboard"}


def _names_runs(config: Any) -> bool:
    """Sinks of a user's own get the settings, too, and may read them."""
    return config.wandb_project is not None or not _NAMELESS_SINKS.issuperset(names_in(config.sinks))


def _names_models(config: Any) -> bool:
    is_registered = getattr(config, "registered_model_name", None) is not None
    # Names to compare with may be a JSON list, which is read where they are opened.
    is_compared = "@" in getattr(config, "compare_with", "")
    return is_registered or is_compared or any(named.is_registered for named in named_weights(config))


@chz.chz
class FolderSettings:
    """Settings of a run's folder, of its service, and of the registry that knows models by name."""

    help_title = "Run"

    log_path: str | None = chz.field(
        default=None, doc="Run directory; default: a new one under runs/.", metadata=facts(free_on_resume=True)
    )
    behavior_if_log_dir_exists: Literal["ask", "delete", "raise", "resume"] = chz.field(
        default="ask",
        doc="What to do when the run directory exists: ask, delete, raise or resume.",
        validator=read_if(
            lambda config: config.log_path is not None, "with log_path, and a new folder is made without"
        ),
        metadata=facts(free_on_resume=True),
    )
    view: bool = chz.field(
        default=False,
        doc="Serve the page of the run on this machine while it goes, and print its address; cookhouse view does at "
        "any time.",
        metadata=facts(free_on_resume=True),
    )
    sinks: str = chz.field(
        default="",
        doc="Further sinks of telemetry, by name (wandb, trackio, mlflow, tensorboard, opentelemetry, jsonl), "
        "module:name or file.py:name, separated by commas.",
        metadata=facts(free_on_resume=True, is_list=True),
    )
    metrics: Literal["main", "all"] = chz.field(
        default="main",
        doc="Metrics that are written: main, those that decide; or all.",
        metadata=facts(free_on_resume=True),
    )
    wandb_project: str | None = chz.field(
        default=None,
        doc="Project in W&B and Trackio, experiment in MLflow; where sinks names none of them, it turns wandb on.",
        metadata=facts(free_on_resume=True),
    )
    wandb_name: str | None = chz.field(
        default=None,
        doc="Name of the run in W&B, Trackio and MLflow; default: that of the run directory.",
        validator=read_if(_names_runs, "with wandb_project, or with wandb, trackio or mlflow among sinks"),
        metadata=facts(free_on_resume=True),
    )
    artifact_store: str | None = chz.field(
        default=None,
        doc="Where the run's files are put when it ends: a folder, s3://, gs:// or az:// with a bucket, module:NAME or "
        "file.py:NAME.",
        metadata=facts(free_on_resume=True),
    )
    base_url: str | None = chz.field(
        default=None,
        doc="Address of the training service; default: TINKER_BASE_URL, else the local engine.",
        metadata=facts(free_on_resume=True),
    )
    registry: str | None = chz.field(
        default=None,
        doc="Registry of models: a .db file, mlflow, module:name or file.py:name; default: COOKHOUSE_REGISTRY, else "
        "runs/registry.db.",
        validator=read_if(_names_models, "with registered_model_name, or with a registered model named"),
        metadata=facts(free_on_resume=True),
    )
    service_patience_seconds: float = chz.field(
        default=300.0,
        doc="Seconds without an answer of the service after which a run ends.",
        validator=above(0, "300"),
        metadata=facts(free_on_resume=True),
    )
