"""Overfitting is said where it shows, with the checkpoint to take, and nowhere else."""

from dataclasses import replace
from typing import Any

import pytest
from tests.pages.reader import Page
from tests.report.test_run_page import record

from cookhouse.report import overfitting_remark, run_page
from cookhouse.weights.checkpoints import Checkpoint

HELD_OUT = {0: 3.0, 5: 2.0, 10: 1.5, 15: 1.8, 20: 2.4}


def rows(name: str = "test/nll", falls: bool = True, **held_out: float) -> list[dict[str, Any]]:
    """Twenty steps of a training loss, evaluated every five; `held_out` changes values by their step, as `s5=1.0`."""
    values = HELD_OUT | {int(step[1:]): value for step, value in held_out.items()}
    trained = [{"step": step, "train/loss": 2 / (1 + step) if falls else 1.0} for step in range(20)]
    return [*trained, *({"step": step, name: value} for step, value in values.items())]


def saved(step: int) -> Checkpoint:
    path = f"tinker://x/{step}"
    return Checkpoint(name=f"{step:06d}", epoch=0, batch=0, step=step, final=False, state_path=None, sampler_path=path)


def test_the_sentence_names_the_step_the_figures_and_the_checkpoint() -> None:
    assert overfitting_remark(rows(), [saved(5), saved(10), saved(20)], {}) == (
        "Overfitting after step 10: held-out loss goes from 1.5 to 2.4 at step 20, while training loss goes from "
        "0.25825 to 0.1118. The best weights are in the checkpoint 000010: tinker://x/10"
    )
    unsaved = overfitting_remark(rows(), [saved(20)], {})
    assert unsaved is not None
    assert unsaved.endswith(" No checkpoint is of step 10: keep_best=auto would have kept the best.")


@pytest.mark.parametrize(
    "found",
    [
        rows(s15=1.4, s20=1.3),
        rows(s20=1.52),
        rows(falls=False),
        [row for row in rows() if row.get("step") not in (0, 5, 15) or "train/loss" in row],
        [row for row in rows() if "train/loss" not in row],
        [*rows("test/mine")],
        [],
    ],
    ids=["improves", "noise", "training stands still", "two evaluations", "untrained", "no direction", "nothing"],
)
def test_nothing_is_said_of_what_is_no_overfitting(found: list[dict[str, Any]]) -> None:
    # Catches a warning after every run that wobbles.
    assert overfitting_remark(found, [], {}) is None


def test_a_share_has_to_fall_by_more_than_its_standard_error() -> None:
    def shares(error: float) -> list[dict[str, Any]]:
        made = rows("test/exact_match", s0=0.1, s5=0.5, s10=0.8, s15=0.7, s20=0.7)
        return [{**row, "test/exact_match_stderr": error} if "test/exact_match" in row else row for row in made]

    assert overfitting_remark(shares(0.1), [], {}) is None
    said = overfitting_remark(shares(0.05), [], {})
    assert said is not None
    assert said.startswith("Overfitting after step 10: exact match goes from 80% to 70% at step 20")


def test_the_page_has_it() -> None:
    page = run_page(replace(record("hello"), metrics=rows(), checkpoints=[saved(10)]))
    assert "Overfitting after step 10" in Page(page).text
