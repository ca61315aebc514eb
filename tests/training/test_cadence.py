from cookhouse.training import Cadence


def test_saves_are_due_after_every_nth_step_but_the_last() -> None:
    cadence = Cadence(save_every=3)
    assert [step for step in range(1, 10) if cadence.is_save_due(step, 9)] == [3, 6]
    assert not any(Cadence().is_save_due(step, 9) for step in range(1, 10))


def test_first_weights_are_always_evaluated() -> None:
    assert [step for step in range(9) if Cadence().is_eval_due(step)] == [0]
    assert [step for step in range(9) if Cadence(eval_every=4).is_eval_due(step)] == [0, 4, 8]
