"""What is shown of a step's datums: which of them, and which part of a long one."""

from typing import Any

import numpy as np
import tinker
from tests.algorithms.base.kit import answered, datum
from tinker.types import ImageChunk

from cookhouse.algorithms.base.example_log import MAX_TARGETS, AnsweredDatum, example_row, shown_datums
from cookhouse.training.loop.objective import answered_logprobs


def row_of(each: tinker.Datum, logprobs: list[float] | None = None) -> dict[str, Any]:
    part = answered([each], None if logprobs is None else [logprobs])
    return example_row(shown_datums([part], 1)[0], answered_logprobs)


def numbers(found: list[AnsweredDatum]) -> list[int]:
    return [each.number for each in found]


def test_examples_are_spread_over_all_pieces_of_a_step() -> None:
    """Catches a step of minibatches of which only the first is shown."""
    pieces = [answered([datum([1, piece, index]) for index in range(4)]) for piece in range(2)]
    found = shown_datums(pieces, 4)
    assert numbers(found) == [0, 2, 4, 6]
    assert found[2].datum is pieces[1][0].data_D[0]
    assert shown_datums(pieces, 0) == []
    assert shown_datums([], 4) == []
    assert numbers(shown_datums(pieces, 64)) == list(range(8))


def test_pairs_stay_together_under_their_labels() -> None:
    """Catches even spacing that shows chosen answers alone."""
    piece = answered([datum([1, index]) for index in range(6)], labels=("chosen", "rejected"))
    found = shown_datums([piece], 2)
    assert [(each.number, each.label) for each in found] == [
        (0, "chosen"), (1, "rejected"), (2, "chosen"), (3, "rejected"),
    ]  # fmt: skip


def test_of_work_that_is_trained_on_twice_the_first_answer_is_shown() -> None:
    """Catches logprobs of weights that this very step has changed, and a datum that is shown twice."""
    data = [datum([1, 2, 3])]
    [found] = shown_datums([answered(data, [[-1, -2]]), answered(data, [[-8, -9]])], 4)
    assert example_row(found, answered_logprobs)["logprobs"] == [-1.0, -2.0]


def test_values_stand_under_names_that_tell_sampler_from_trainer() -> None:
    each = datum([5, 6, 7], logprobs=[0, -0.5], advantages=[0, 2], mask=[0, 1], teacher_logprobs=[0, -3])
    assert row_of(each, [-9, -0.25]) == {
        "number": 0, "label": "", "num_before": 0, "num_after": 0,
        "tokens": [5, 6], "targets": [6, 7], "weights": [0.0, 1.0], "advantages": [0.0, 2.0],
        "sampler_logprobs": [0.0, -0.5], "teacher_logprobs": [0.0, -3.0], "logprobs": [-9.0, -0.25],
    }  # fmt: skip


def test_an_answer_of_another_size_than_the_targets_is_left_out() -> None:
    """Catches the sum over an answer that is shown as the logprob of its first token."""
    row = row_of(datum([1, 2, 3, 4]), [-7.0])
    assert "logprobs" not in row
    assert row["weights"] == [1.0, 1.0, 1.0]


def test_a_long_example_is_cut_to_where_it_is_trained_on() -> None:
    """Catches a window over the prompt alone, and values that are shifted against the targets."""
    num_targets = 3 * MAX_TARGETS
    weights = np.zeros(num_targets)
    weights[5000:5010] = 1
    row = row_of(datum(range(num_targets + 1), weights=weights))
    assert (row["num_before"], row["num_after"]) == (num_targets - MAX_TARGETS, 0)
    at = row["targets"].index(5001)
    assert row["weights"][at] == 1
    assert row["weights"][at - 1] == 0
    assert row["logprobs"][at] == -5000
    assert row["tokens"][at] == 5000
    assert {len(row[name]) for name in ("tokens", "targets", "weights", "logprobs")} == {MAX_TARGETS}


def test_the_window_begins_a_little_before_what_is_trained_on() -> None:
    weights = np.zeros(3 * MAX_TARGETS)
    weights[1000:] = 1
    row = row_of(datum(range(weights.size + 1), weights=weights))
    assert 1000 - MAX_TARGETS // 4 < row["num_before"] < 1000
    assert row["num_before"] + MAX_TARGETS + row["num_after"] == weights.size


def test_several_targets_at_a_position_keep_their_shape() -> None:
    """Catches soft targets, whose logprobs a service answers in one row."""
    inputs = {
        "target_tokens": tinker.TensorData.from_numpy(np.array([[2, 3], [4, 5]])),
        "weights": tinker.TensorData.from_numpy(np.array([[0.75, 0.25], [0.5, 0.5]], dtype=np.float32)),
    }
    row = row_of(tinker.Datum(model_input=tinker.ModelInput.from_ints([1, 2]), loss_fn_inputs=inputs), [-1, -2, -3, -4])
    assert row["targets"] == [[2, 3], [4, 5]]
    assert row["logprobs"] == [[-1.0, -2.0], [-3.0, -4.0]]


def test_an_image_has_no_tokens() -> None:
    image = ImageChunk(data=b"", format="png", expected_tokens=2)
    inputs = {"target_tokens": tinker.TensorData.from_numpy(np.array([0, 0, 8, 9]))}
    chunks: list[Any] = [tinker.EncodedTextChunk(tokens=[1]), image, tinker.EncodedTextChunk(tokens=[8])]
    row = row_of(tinker.Datum(model_input=tinker.ModelInput(chunks=chunks), loss_fn_inputs=inputs), [0, 0, 0, -1])
    assert row["tokens"] == [1, None, None, 8]
