from cookhouse.telemetry import after_step, last_step_of, step_number


def test_the_first_step_is_1_and_what_is_held_out_tells_of_steps_taken() -> None:
    """Catches a last step of 119 beside a terminal that says 120/120, and an evaluation one step late."""
    assert step_number(119) == 120
    assert step_number(0, "train/loss") == 1
    assert step_number(0, "test/nll") == 0
    assert step_number(120, "test/nll") == 120


def test_the_last_row_of_a_run_tells_of_its_last_step() -> None:
    """Catches a run without held-out data that is told one step short, and one with some a step long."""
    assert last_step_of({"step": 119, "train/loss": 1.0, "test/nll": 2.0}) == 120
    assert last_step_of({"step": 120, "test/nll": 2.0}) == 120
    assert last_step_of({"step": 3}) == 3


def test_weights_that_took_no_step_are_those_before_training() -> None:
    assert [after_step(step) for step in (0, 1, 1200)] == ["before training", "after step 1", "after step 1,200"]
