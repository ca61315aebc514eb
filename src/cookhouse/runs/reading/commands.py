"""Commands on a run, to copy: they name its folder in full, and work from anywhere."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cookhouse.runs.listing.find import FoundRun
from cookhouse.runs.record import resume_command
from cookhouse.weights.checkpoints import Checkpoint


@dataclass(frozen=True, kw_only=True)
class RunCommand:
    """A command, and what for."""

    purpose: str
    text: str


def run_commands(run: FoundRun, saved: Sequence[Checkpoint]) -> list[RunCommand]:
    """Commands for a run in its present state. A run means its best checkpoint where it keeps that, else its last."""
    return [RunCommand(purpose=purpose, text=text) for purpose, text in _of_run(run, saved)]


def export_command(run: FoundRun, point: Checkpoint) -> str | None:
    """Command that writes a checkpoint as a folder that other programs load; None: it has nothing to sample from."""
    path = point.sampler_path or point.state_path
    if path is None:
        return None
    return f"cookhouse checkpoints export {shlex.quote(path)} {shlex.quote(point.name)} --run {_folder(run)}"


def _of_run(run: FoundRun, saved: Sequence[Checkpoint]) -> Iterator[tuple[str, str]]:
    folder = _folder(run)
    if (resume := resume_command(run.path, run.history)) is not None:
        yield "to continue", resume
    if any(point.sampler_path for point in saved):
        yield "to ask it", f'cookhouse sample {folder} "a question"'
        yield "to talk with it", f"cookhouse chat {folder}"
        yield "to export it", f"cookhouse checkpoints export {folder} {shlex.quote(f'{run.path.name}-adapter')}"
    if saved:
        yield "to train on from it", f"cookhouse run {_recipe(run)} load_checkpoint_path={folder}"
    yield "to write its report", f"cookhouse report {folder}"


def _folder(run: FoundRun) -> str:
    return shlex.quote(str(Path(run.path).resolve()))


def _recipe(run: FoundRun) -> str:
    return shlex.quote(run.history.launches[-1].recipe or str(run.record.get("recipe") or "RECIPE"))
