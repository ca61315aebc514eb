"""What is said of each loss over sampled tokens is what the engine and the fake service do, and settings go by."""

from typing import Any

import numpy as np
import pytest
import tinker

from cookhouse.engine.contract import PAIR_LOSSES
from cookhouse.engine.train.losses import LOSSES as IN_ENGINE
from cookhouse.errors import InputError
from cookhouse.losses.policy_losses import OWN_LOSSES, POLICY_LOSSES, PolicyLoss
from cookhouse.rl import for_loss
from cookhouse.settings import LossSettings
from cookhouse.training.clients.fake_losses import token_losses

every_loss = pytest.mark.parametrize("name", sorted(POLICY_LOSSES))
SETTINGS = {"clip_low": "clip_low_threshold", "clip_high": "clip_high_threshold", "dro_beta": "beta"}


def computed(name: str, lp_T: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Losses and slopes of three tokens, sampled at a logprob of −1, the last of which was not sampled."""
    inputs = {
        "logprobs": np.full(3, -1.0),
        "advantages": np.array([1.0, 1.0, 0.0]),
        "sequence_ratio_mask": np.array([1.0, 1.0, 0.0]),
    }
    return token_losses(name, np.array(lp_T), inputs, None)


def test_engine_and_table_have_the_same_losses() -> None:
    assert IN_ENGINE.keys() - {"cross_entropy", *PAIR_LOSSES, *OWN_LOSSES} == POLICY_LOSSES.keys()


@every_loss
def test_inputs_and_defaults_are_the_engines(name: str) -> None:
    assert IN_ENGINE[name].inputs == {*POLICY_LOSSES[name].inputs}
    assert IN_ENGINE[name].config == POLICY_LOSSES[name].options


@every_loss
def test_the_fake_service_has_the_same_defaults(name: str) -> None:
    """Would catch a default of the fake's own: what is said to be one changes nothing."""
    inputs: dict[str, Any] = {key: np.full(1, 0.5) for key in POLICY_LOSSES[name].inputs}
    for lp in (-4.0, 0.4, 4.0):
        given = token_losses(name, np.array([lp]), inputs, POLICY_LOSSES[name].options)
        assert given == token_losses(name, np.array([lp]), inputs, None)


@every_loss
def test_a_datum_becomes_what_the_loss_takes(name: str) -> None:
    values = tinker.TensorData.from_numpy(np.ones(1, np.float32))
    inputs = dict.fromkeys(("target_tokens", "logprobs", "advantages", "mask", "teacher_logprobs"), values)
    datum = tinker.Datum(model_input=tinker.ModelInput.from_ints([1]), loss_fn_inputs=inputs)
    assert {*for_loss(datum, name).loss_fn_inputs} == {"target_tokens", *IN_ENGINE[name].inputs}


@every_loss
def test_tokens_that_were_not_sampled_count_if_said_so(name: str) -> None:
    _, slope_T = computed(name, [-1.0, -1.0, -3.0])
    assert bool(slope_T[2] != 0) is POLICY_LOSSES[name].reads_unsampled_tokens


@every_loss
def test_the_ratio_is_of_a_sequence_if_one_token_changes_what_another_counts(name: str) -> None:
    own, shared = computed(name, [-1.0, -1.0, -1.0])[0], computed(name, [-1.0, -1.0001, -1.0])[0]
    assert bool(own[0] != shared[0]) is (POLICY_LOSSES[name].ratio == "sequence")


@every_loss
def test_a_ratio_is_unbounded_if_a_likelier_token_counts_without_end(name: str) -> None:
    """Would catch a run that is not warned of its ratios, and one that is warned of those that are clipped."""
    slope_T = computed(name, [30.0, -1.0, -1.0])[1]
    assert bool(slope_T[0] < -1e6) is POLICY_LOSSES[name].has_unbounded_ratio


@pytest.mark.parametrize("setting", SETTINGS)
@every_loss
def test_settings_are_refused_where_a_loss_has_no_such_option(name: str, setting: str) -> None:
    value = 1.5 if setting == "clip_high" else 0.5
    given: Any = {setting: value}
    if SETTINGS[setting] in POLICY_LOSSES[name].options:
        assert LossSettings(loss_fn=name, **given).loss_fn_config == {SETTINGS[setting]: value}
        return
    with pytest.raises(InputError, match=f"^{setting}={value} would change nothing: it is read by loss_fn="):
        LossSettings(loss_fn=name, **given)


def test_what_is_not_published_is_not_reported_on() -> None:
    """Would catch a clipped share at bounds that the hosted service may not have."""
    assert POLICY_LOSSES["ppo"].published_options == {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
    assert POLICY_LOSSES["gspo"].published_options == {}


def test_nothing_is_known_of_a_loss_of_the_users_own() -> None:
    assert LossSettings(loss_fn="own.py:loss").policy_loss == PolicyLoss()
    assert not PolicyLoss().has_unbounded_ratio
