"""MLflow, by its own SDK: the tracking server, database or folder of MLFLOW_TRACKING_URI."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException

from cookhouse.telemetry.record import Values
from cookhouse.telemetry.sinks.fitted_names import mlflow_name
from cookhouse.telemetry.sinks.tracked import TrackerRun, TrackerSink, described, read_tracker_run, run_name

_STATUSES = {"success": "FINISHED", "interrupted": "KILLED", "errored": "FAILED"}
_MAX_PARAM_CHARACTERS = 6000  # more is an error there
_MAX_PARAMS = 100  # of one request
_MAX_METRICS = 1000


class MlflowTracker:
    """A run of MLflow, resumed if there is one to go on in."""

    settling_seconds = 0.0

    def __init__(self, kept: TrackerRun | None, project: str, name: str, config: Mapping[str, Any]) -> None:
        self._client = MlflowClient()
        self.run = kept if kept is not None and self._goes_on(kept) else self._new_run(project, name)
        self._log_params(config)

    def log(self, step: int, values: Values) -> None:
        """Numbers are metrics of the run; text, which MLflow keeps none of by step, is the artifact
        `text/step-{step}.json`.
        """
        now = int(time.time() * 1000)
        metrics = [
            Metric(mlflow_name(name), float(value), now, step)
            for name, value in values.items()
            if not isinstance(value, str)
        ]
        for batch in _batches(metrics, _MAX_METRICS):
            self._client.log_batch(self.run.id, metrics=batch)
        if text := {name: value for name, value in values.items() if isinstance(value, str)}:
            self._client.log_dict(self.run.id, text, f"text/step-{step}.json")

    def finish(self, status: str) -> None:
        self._client.set_terminated(self.run.id, status=_STATUSES.get(status, "FAILED"))

    def _goes_on(self, kept: TrackerRun) -> bool:
        """Not where the server is another one, or the run was deleted there."""
        try:
            if self._client.get_run(kept.id).info.lifecycle_stage != "active":
                return False
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise
        self._client.update_run(kept.id, status="RUNNING")
        return True

    def _new_run(self, project: str, name: str) -> TrackerRun:
        experiment = self._client.get_experiment_by_name(project)
        experiment_id = self._client.create_experiment(project) if experiment is None else experiment.experiment_id
        return TrackerRun(
            id=self._client.create_run(experiment_id, run_name=name).info.run_id, name=name, project=project
        )

    def _log_params(self, config: Mapping[str, Any]) -> None:
        """A parameter has one value for good: a setting that a resumed run has changed keeps its first one there."""
        known = self._client.get_run(self.run.id).data.params
        params = [
            Param(name, str(value)[:_MAX_PARAM_CHARACTERS]) for name, value in config.items() if name not in known
        ]
        for batch in _batches(params, _MAX_PARAMS):
            self._client.log_batch(self.run.id, params=batch)


def make_sink(folder: Path, settings: Mapping[str, Any]) -> TrackerSink:
    """The sink `mlflow`. Raises `MlflowException`, of the library."""
    project = settings.get("wandb_project") or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "cookhouse"
    name = run_name(folder, settings)
    return TrackerSink(
        "mlflow", folder, MlflowTracker(read_tracker_run(folder, "mlflow"), project, name, described(folder, settings))
    )


def _batches(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
