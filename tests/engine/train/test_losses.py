"""Catches bad training data that would reach the model."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from cookhouse.engine.contract import ForwardBackward, TrainingDatum
from cookhouse.engine.train.losses import LOSSES, check_request
from cookhouse.errors import InputError

_GOOD: dict[str, Any] = {
    "tokens_T": np.array([1, 2, 3]),
    "loss_fn_inputs": {"target_tokens": np.array([2, 3, 4]), "weights": np.ones(3, np.float32)},
}


def _request(**changes: Any) -> ForwardBackward:
    good = TrainingDatum(**_GOOD)
    bad = dataclasses.replace(
        good,
        tokens_T=changes.get("tokens_T", good.tokens_T),
        loss_fn_inputs={**good.loss_fn_inputs, **changes.get("inputs", {})},
    )
    return ForwardBackward(model_id="m", data_D=[good, bad], loss_fn=changes.get("loss_fn", "cross_entropy"))


def test_good_requests_pass_with_and_without_weights_and_with_several_targets() -> None:
    check_request(_request(), vocab_size=10, max_tokens=3)
    datum = TrainingDatum(tokens_T=np.array([1]), loss_fn_inputs={"target_tokens": np.array([2])})
    check_request(ForwardBackward(model_id="m", data_D=[datum], loss_fn="cross_entropy"), 10, 3)
    two = {"target_tokens": np.ones((3, 2), np.int64), "weights": np.ones((3, 2), np.float32)}
    check_request(_request(inputs=two), vocab_size=10, max_tokens=3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens_T": np.array([1, 2, 10])}, "datum 1: model_input holds token 10 at position 2"),
        ({"tokens_T": np.array([-1, 2, 3])}, "holds token -1 at position 0"),
        ({"tokens_T": np.array([], np.int64)}, "model_input is empty"),
        ({"tokens_T": np.array([1, 2, 3, 4])}, "4 tokens; the model takes at most 3"),
        ({"tokens_T": np.array([1, 2])}, "target_tokens has shape"),
        ({"inputs": {"target_tokens": np.array([2, 3, 11])}}, "target_tokens holds token 11"),
        ({"inputs": {"target_tokens": np.array([2.0, 3.0, 4.0], np.float32)}}, "must be an integer type"),
        ({"inputs": {"target_tokens": np.ones((3, 0), np.int64)}}, "target_tokens has shape"),
        ({"inputs": {"weights": np.ones(2, np.float32)}}, "weights has shape"),
        ({"inputs": {"weights": np.array([1, np.nan, 1], np.float32)}}, "weights holds NaN or infinity at position 1"),
        ({"inputs": {"weights": np.array([1, 1, np.inf], np.float32)}}, "weights holds NaN or infinity at position 2"),
        ({"inputs": {"advantages": np.ones(3, np.float32)}}, "does not take advantages"),
        ({"loss_fn": "cross_entropi"}, "did you mean cross_entropy"),
        ({"loss_fn": "custom"}, "pass forward_backward_custom a plain function"),
        ({"loss_fn": "ppo"}, "ppo lacks advantages, logprobs"),
    ],
)
def test_bad_requests_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_request(_request(**changes), vocab_size=10, max_tokens=3)


def test_missing_targets_unknown_options_and_no_data_are_refused() -> None:
    datum = TrainingDatum(tokens_T=np.array([1]), loss_fn_inputs={})
    with pytest.raises(InputError, match="lacks target_tokens"):
        check_request(ForwardBackward(model_id="m", data_D=[datum], loss_fn="cross_entropy"), 10, 3)
    with pytest.raises(InputError, match="cross_entropy has no options; leave beta out"):
        check_request(dataclasses.replace(_request(), loss_fn_config={"beta": 1.0}), 10, 3)
    with pytest.raises(InputError, match="unknown option of dro 'betta'; did you mean beta"):
        check_request(dataclasses.replace(_request(loss_fn="dro"), loss_fn_config={"betta": 1.0}), 10, 3)
    with pytest.raises(InputError, match="no datum"):
        check_request(dataclasses.replace(_request(), data_D=[]), 10, 3)


def test_a_loss_that_is_refused_is_so_before_its_options_and_inputs() -> None:
    """Would catch a refusal of what only that loss takes, which hides the text that says which to use instead."""
    request = dataclasses.replace(
        _request(loss_fn="custom", inputs={"logprobs": np.ones(3, np.float32)}),
        loss_fn_config={"loss_id": "mine"},
    )
    with pytest.raises(InputError, match="pass forward_backward_custom a plain function"):
        check_request(request, vocab_size=10, max_tokens=3)


@pytest.mark.parametrize(
    ("loss_fn", "config", "message"),
    [
        ("cispo", {"clip_high_threshold": -1.0}, "clip_high_threshold is -1.0; it must be above 0"),
        ("ppo", {"clip_low_threshold": 1.2, "clip_high_threshold": 0.8}, "clip_low_threshold=1.2 must be below"),
        ("ppo", {"clip_high_threshold": 0.5}, r"clip_low_threshold=0.8 \(the default\) must be below"),
        ("gspo", {"clip_low_threshold": -0.5}, "clip_low_threshold is -0.5; it must be at least 0"),
        ("gspo", {"clip_low_threshold": 1.1}, r"must be below clip_high_threshold=1.0004 \(the default\)"),
        ("dro", {"beta": -0.1}, "beta is -0.1; it must be at least 0"),
        ("stable_reinforce", {"kl_coeff": -0.1}, "kl_coeff is -0.1; it must be at least 0"),
        ("stable_reinforce", {"clip_high_threshold": 0.0}, "clip_high_threshold is 0.0; it must be above 0"),
    ],
)
def test_options_have_bounds(loss_fn: str, config: dict[str, float], message: str) -> None:
    """Would catch options with which a loss trains the other way, or is 0 whatever is sampled."""
    inputs = {name: np.ones(3, np.float32) for name in LOSSES[loss_fn].inputs}
    datum = TrainingDatum(tokens_T=np.array([1, 2, 3]), loss_fn_inputs={"target_tokens": np.array([2, 3, 4]), **inputs})
    request = ForwardBackward(model_id="m", data_D=[datum], loss_fn=loss_fn, loss_fn_config=config)
    with pytest.raises(InputError, match=f"^options of {loss_fn}: .*{message}"):
        check_request(request, vocab_size=10, max_tokens=3)
    check_request(dataclasses.replace(request, loss_fn_config={}), vocab_size=10, max_tokens=3)
