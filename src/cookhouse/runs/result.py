"""The result of a run, and result.json, where that is read without running it again."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from cookhouse.diagnosis import Finding
from cookhouse.errors import InputError
from cookhouse.files import write_whole
from cookhouse.runs.names import RESULT_FILE

S = TypeVar("S")


@dataclass(frozen=True, kw_only=True)
class AnswerSample:
    """One held-out conversation and what the model answered before and after training."""

    prompt: str
    earlier: tuple[tuple[str, str], ...] = ()
    """Role and text of the messages before the prompt."""
    expected: str
    before: str | None
    after: str | None
    teacher: str | None = None
    """What its teacher answered, in distillation."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A metric before and after training. What was not measured is None, never 0."""

    name: str
    """Key of the metric."""
    label: str
    """For a person, with its unit."""
    before: float | None
    after: float | None
    is_share: bool = False
    """Whether it lies in [0, 1] and is shown in percent."""
    stderr: float | None = None
    """Standard error of `after`, where it is a mean and that was measured."""
    n: float | None = None
    """Items that `after` is the mean of, where that is known."""


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """Summary for a person at the end of a run."""

    recipe: str
    model_name: str
    folder: Path
    is_interrupted: bool
    """Whether it can be gone on with: somebody or a limit stopped it, or a setting paused it."""
    num_steps: int
    """Optimizer steps taken so far, those before a resume included."""
    total_steps: int
    seconds: float
    """Wall-clock time of this call."""
    figures: Sequence[Figure]
    samples: Sequence[AnswerSample]
    remark: str | None = None
    """What the figures come to, in a sentence or two, where there is something to say."""
    findings: Sequence[Finding] = ()
    """Findings in the metrics, the gravest first."""
    report: Path | None
    """The page with curves and answers, if it could be written."""
    state_path: str | None
    sampler_path: str | None
    """tinker:// paths of the best checkpoint where the run keeps that, else of the last that has one."""
    synthetic: tuple[str, ...] = ()
    """Ports whose adapters made something up: such a run measured and trained nothing that counts."""
    next_command: str
    """The resume command after an interrupt, else the command that samples from the trained model; empty: the run left
    nothing to go on with."""
    usage: Mapping[str, float] | None = None
    """What the service counted for it: tokens by kind, and `engine_seconds`; what the run counted itself on the hosted
    service, which does not report it; None of others that do not."""
    usage_text: str | None = None
    """The same in words, with the launches that it leaves out."""
    cost: str | None = None
    """What that comes to by `price_per_million`, in words."""
    best: str | None = None
    """The checkpoint with the best weights, and by what, of a run that keeps it: `000040-best: held-out loss 1.25 after
    step 40`."""
    is_paused: bool = False
    """Whether it did all that it was to do before a pause."""
    stopped: str | None = None
    """Why the run ended before its last step; None where somebody interrupted it."""
    registered_model: str | None = None
    """`name@version` that the trained weights were registered as."""

    def before(self, name: str) -> float | None:
        """A metric before training, if it was measured."""
        return next((figure.before for figure in self.figures if figure.name == name), None)

    def after(self, name: str) -> float | None:
        """A metric after training, if it was measured."""
        return next((figure.after for figure in self.figures if figure.name == name), None)


@dataclass(frozen=True, kw_only=True)
class RunResult(Generic[S]):
    """The outcome of a recipe: its final state, the last value of every metric, and files and paths by name.

    Where a no-op adapter made something up, metrics and artifacts have `synthetic` among them.
    """

    state: S
    metrics: Mapping[str, Any]
    artifacts: Mapping[str, str]
    summary: RunSummary


def write_result(result: RunResult[Any]) -> None:
    """Keep a result in its run's folder, if the run has made one.

    Raises:
        InputError: the disk is full or may not be written.
    """
    if not result.summary.folder.is_dir():
        return
    row = {
        "metrics": dict(result.metrics),
        "artifacts": dict(result.artifacts),
        "summary": asdict(result.summary),
    }
    write_whole(result.summary.folder / RESULT_FILE, json.dumps(row, indent=1, default=str) + "\n")


def read_result(folder: Path) -> RunResult[None] | None:
    """The result of a run that came to its end; None if it has not. Its state is gone with its process.

    Raises:
        InputError: the file does not hold what `write_result` wrote.
    """
    path = folder / RESULT_FILE
    if not path.is_file():
        return None
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        return RunResult(
            state=None,
            metrics=dict(row["metrics"]),
            artifacts=dict(row["artifacts"]),
            summary=replace(_summary(row["summary"]), folder=folder),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not the result of a run ({error}); remove it to run that again") from error


def _summary(row: dict[str, Any]) -> RunSummary:
    paths = {name: None if row[name] is None else Path(row[name]) for name in ("folder", "report")}
    figures = [Figure(**figure) for figure in row["figures"]]
    samples = [AnswerSample(**sample) for sample in row["samples"]]
    findings = [Finding(**finding) for finding in row.get("findings", ())]
    synthetic = tuple(row.get("synthetic", ()))
    parts = {"figures": figures, "samples": samples, "findings": findings, "synthetic": synthetic}
    return RunSummary(**{**row, **paths, **parts})
