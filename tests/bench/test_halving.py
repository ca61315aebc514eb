"""Catches a comparison of halving with the full sweep that no longer runs, or says of a winner what it is not."""

import sys
from dataclasses import replace

import pytest
from bench.halving import Side, is_within_error, num_steps

from bench import halving

SIDE = Side(
    seconds=1.0,
    processor_seconds=1.0,
    steps=1,
    launches=1,
    values={},
    best="1",
    loss=0.5,
    loss_error=0.125,
    score=0.5,
    score_error=0.125,
)


@pytest.mark.parametrize(("loss", "expected"), [(0.75, False), (0.625, True), (0.5, True), (0.1, True)])
def test_a_better_winner_is_within_the_error(loss: float, expected: bool) -> None:
    # Catches a winner of halving that beats the full sweep's and is told as missing it.
    assert is_within_error(replace(SIDE, loss=loss), SIDE) is expected


def test_a_run_that_was_never_measured_counts_no_steps() -> None:
    # Catches a failed run that counts as a whole one, which makes halving look slower than it is.
    assert num_steps([{"steps": "2"}, {"steps": ""}, {"steps": "8"}], 8) == 10
    assert num_steps([{"state": "finished"}, {"state": "finished"}], 8) == 16


@pytest.mark.long
def test_both_sides_run_and_are_compared(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    # Catches a column, a file or an option of the sweep that changed its name.
    words = ["--grid", "learning_rate=1e-3,1e-2,1e-1", "num_eval=4", "--max-steps", "4", "--min-steps", "2"]
    monkeypatch.setattr(sys, "argv", ["bench.halving", *words])
    halving.main()
    out = capsys.readouterr().out
    assert "halving from step 2: " in out
    assert ", 8 steps in 4 launches" in out
    assert ", 12 steps in 3 launches" in out
    assert "its best has rank" in out
    assert " of 3 in the full sweep, by test/nll" in out
