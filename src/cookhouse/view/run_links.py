"""Links from the page of a run to the pages about parts of it."""

from pathlib import Path
from urllib.parse import quote, urlencode

from cookhouse.pages import run_address
from cookhouse.runs.listing.find import FoundRun
from cookhouse.runs.names import EVALUATIONS_FOLDER, SWEEP_RECIPE
from cookhouse.runs.reading.answer_sets import is_evaluation
from cookhouse.runs.reading.rollouts import rollout_steps
from cookhouse.runs.samples import evaluated_steps
from cookhouse.view.place import Place
from cookhouse.view.tokens.step_name import StepName
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE


def links_of(run: FoundRun, place: Place) -> list[dict[str, str]]:
    """Title and address of each page that there is now."""
    query = urlencode({"run": run.name})
    tested = evaluated_steps(run.path)
    found = [
        ("rollouts", _rollouts(run, is_test=False)),
        ("held-out rollouts", _rollouts(run, is_test=True)),
        ("answers", run_address(run.name, "answers") if tested else None),
        ("item by item", f"/evaluations/compare?{query}" if len(tested) > 1 else None),
        ("its evaluation", f"/evaluations?{urlencode({'text': run.name})}" if is_evaluation(run.path) else None),
        ("notes", f"/evaluations/notes?{query}" if _has_notes(run.path) else None),
        ("experiment", _experiment(run, place)),
        ("ask it", f"/playground?{urlencode({'weights': run.name})}" if _has_weights(run.path) else None),
    ]
    return [{"title": title, "address": address} for title, address in found if address is not None]


def held_out_address(run: FoundRun, step: int, *, has_step: bool) -> str:
    """Address of what there is to read of the weights after so many steps: their answers, their held-out rollouts, the
    step that made them, or else what they were measured to be. `has_step`: whether that step has a page.
    """
    sampled = StepName(step, is_test=True)
    if step in evaluated_steps(run.path):
        return run_address(run.name, f"answers?step={step}")
    if sampled.file(run.path).is_file():
        return run_address(run.name, f"rollouts/{sampled}")
    return run_address(run.name, f"steps/{step}" if has_step else "#evaluation")


def _rollouts(run: FoundRun, *, is_test: bool) -> str | None:
    """Of the last step that has some."""
    steps = rollout_steps(run.path, is_test=is_test)
    last = next((step for step in reversed(steps) if _has_lines(StepName(step, is_test).file(run.path))), None)
    return None if last is None else run_address(run.name, f"rollouts/{StepName(last, is_test)}")


def _has_lines(file: Path) -> bool:
    return file.stat().st_size > 0


def _experiment(run: FoundRun, place: Place) -> str | None:
    """The sweep that it is, or that it is part of."""
    sweep = run if run.parent is None or run.record.get("recipe") == SWEEP_RECIPE else place.run(run.parent)
    return f"/experiments/{quote(sweep.name)}" if sweep.record.get("recipe") == SWEEP_RECIPE else None


def _has_notes(folder: Path) -> bool:
    return any((folder / EVALUATIONS_FOLDER).glob("*.json"))


def _has_weights(folder: Path) -> bool:
    return (folder / CHECKPOINTS_FILE).is_file()
