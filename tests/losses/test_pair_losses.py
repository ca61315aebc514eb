"""What is said of each loss over pairs is what its formula does, and what settings and the engine go by."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cookhouse.engine.contract import PAIR_LOSSES as OF_ENGINE
from cookhouse.engine.train.pairs import PAIR_LOSSES as IN_ENGINE
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.losses.pair_losses import BUILT_IN_PAIR_LOSSES, OPTIONS, PAIR_LOSSES, PairLogprobs, PairLoss
from cookhouse.settings import PairLossSettings, PreferenceSettings

NAMES = sorted(BUILT_IN_PAIR_LOSSES)
every_loss = pytest.mark.parametrize("name", NAMES)


@dataclass(frozen=True, kw_only=True)
class Told:
    """Options that no default has."""

    dpo_beta: float = 0.7
    label_smoothing: float = 0.2
    simpo_gamma: float = 0.3


def tensor(values: Any) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


# Σ logprob of two pairs. All are below their reference, where the KL divergence of kto is taken to be 0.
PAIRS = PairLogprobs(
    chosen_P=tensor([-6.0, -9.0]),
    rejected_P=tensor([-5.0, -8.0]),
    reference_chosen_P=tensor([-4.0, -7.5]),
    reference_rejected_P=tensor([-3.5, -5.0]),
    chosen_tokens_P=tensor([3.0, 5.0]),
    rejected_tokens_P=tensor([2.0, 4.0]),
)


def losses(name: str, pairs: PairLogprobs, told: Told | None = None) -> list[float]:
    found = BUILT_IN_PAIR_LOSSES[name].function(pairs, told or Told()).tolist()
    assert isinstance(found, list)
    return found


def scaled(pairs: PairLogprobs, factor: float) -> PairLogprobs:
    return PairLogprobs(**{key: factor * value for key, value in vars(pairs).items()})


@every_loss
def test_a_loss_needs_a_reference_if_its_value_depends_on_one(name: str) -> None:
    zeros = torch.zeros(2, dtype=torch.float64)
    without = replace(PAIRS, reference_chosen_P=zeros, reference_rejected_P=zeros)
    assert (losses(name, without) != losses(name, PAIRS)) is BUILT_IN_PAIR_LOSSES[name].needs_reference


@every_loss
def test_a_loss_reads_the_options_that_change_it(name: str) -> None:
    moved = {option: losses(name, PAIRS, replace(Told(), **{option: 0.4})) for option in OPTIONS}
    assert {option for option, value in moved.items() if value != losses(name, PAIRS)} == {
        *BUILT_IN_PAIR_LOSSES[name].reads
    }
    assert losses(name, PAIRS, Told(dpo_beta=0.4)) != losses(name, PAIRS), "β is read by all"


@every_loss
def test_a_loss_is_per_token_if_answers_twice_as_long_and_unlikely_count_as_much(name: str) -> None:
    is_same = losses(name, scaled(PAIRS, 2.0)) == pytest.approx(losses(name, PAIRS), rel=1e-12)
    assert is_same is BUILT_IN_PAIR_LOSSES[name].is_per_token


@every_loss
def test_a_loss_compares_answers_if_it_is_no_sum_of_what_each_gives(name: str) -> None:
    """Would catch single answers being refused by a loss that takes them, or let through to one that does not."""
    chosen_P, rejected_P = PAIRS.chosen_P, PAIRS.rejected_P

    def total(chosen: torch.Tensor, rejected: torch.Tensor) -> float:
        return sum(losses(name, replace(PAIRS, chosen_P=chosen, rejected_P=rejected)))

    def mixed(by: float) -> float:
        moved = total(chosen_P - by, rejected_P - by) + total(chosen_P, rejected_P)
        return moved - total(chosen_P - by, rejected_P) - total(chosen_P, rejected_P - by)

    # Far enough that a hinge is met, too.
    is_sum = [mixed(by) for by in (1.0, 9.0)] == pytest.approx([0.0, 0.0], abs=1e-12)
    assert is_sum is not BUILT_IN_PAIR_LOSSES[name].compares_answers


@every_loss
def test_a_loss_compares_the_batch_if_another_pair_changes_the_first(name: str) -> None:
    """Would catch a loss that the engine computes in passes, of which each sees only some of the pairs."""
    better = replace(PAIRS, chosen_P=PAIRS.chosen_P + tensor([0.0, 9.0]), rejected_P=PAIRS.rejected_P + 9.0)
    one = PairLogprobs(**{key: value[:1] for key, value in vars(better).items()})
    is_alone = losses(name, better)[0] == pytest.approx(losses(name, one)[0], rel=1e-12)
    assert is_alone is not BUILT_IN_PAIR_LOSSES[name].compares_batch


def test_the_engine_computes_those_that_need_no_whole_batch() -> None:
    assert {*IN_ENGINE} == {*OF_ENGINE}
    assert {*BUILT_IN_PAIR_LOSSES} - {*OF_ENGINE} == {
        name for name in NAMES if BUILT_IN_PAIR_LOSSES[name].compares_batch
    }
    assert "kto" not in OF_ENGINE


@pytest.mark.parametrize("name", OF_ENGINE)
def test_the_engines_defaults_are_those_of_the_settings(name: str) -> None:
    settings, loss = PairLossSettings(pair_loss=name), IN_ENGINE[name]
    own = {option: value for option, value in loss.config.items() if option not in ("num_pairs", "token_logprobs")}
    assert own == {option: getattr(settings, option) for option in own}
    assert set(own) == {"dpo_beta", *BUILT_IN_PAIR_LOSSES[name].reads}
    assert bool(loss.sums) is BUILT_IN_PAIR_LOSSES[name].needs_reference


def refused(given: Mapping[str, Any]) -> str:
    try:
        PreferenceSettings(**given)
    except InputError as error:
        return str(error)
    return ""


SET: Mapping[str, Any] = {
    "label_smoothing": 0.1,
    "simpo_gamma": 0.5,
    "reference_model": "some/model",
    "cache_reference": False,
}


@pytest.mark.parametrize("option", SET)
@every_loss
def test_settings_are_refused_where_a_loss_does_not_read_them(name: str, option: str) -> None:
    facts = BUILT_IN_PAIR_LOSSES[name]
    is_read = option in facts.reads if option in OPTIONS else facts.needs_reference
    said = refused({"pair_loss": name, option: SET[option]})
    assert said.startswith("" if is_read else f"{option}={SET[option]} would change nothing: it is read by pair_loss=")
    assert bool(said) is not is_read


OWN = """
from cookhouse.losses.pair_losses import PairLoss

def likelihood(pairs, settings):
    return -pairs.chosen_P

ALONE = PairLoss(function=likelihood, needs_reference=False, default_beta=3.0, reads=())
"""


def test_facts_of_a_loss_of_the_users_own_reach_the_settings(tmp_path: Path) -> None:
    """Would catch a reference that is opened for nothing, and a β of our own in the place of the loss's."""
    own = tmp_path / "own.py"
    own.write_text(OWN)
    for option, value in SET.items():
        assert refused({"pair_loss": f"{own}:ALONE", option: value}).startswith(
            f"{option}={value} would change nothing"
        )
        assert not refused({"pair_loss": f"{own}:likelihood", option: value}), "a function may read all"
    assert PreferenceSettings(pair_loss=f"{own}:ALONE").dpo_beta == 3.0
    assert PreferenceSettings(pair_loss=f"{own}:likelihood").dpo_beta == 0.1


def test_a_function_is_taken_to_need_all_and_to_compare_nothing() -> None:
    found = PAIR_LOSSES.find(f"{__name__}:losses_of_pairs")
    assert found == PairLoss(function=losses_of_pairs)
    assert (found.needs_reference, found.reads, found.compares_answers) == (True, (*OPTIONS,), False)


def losses_of_pairs(pairs: PairLogprobs, settings: Told) -> torch.Tensor:
    return settings.dpo_beta * pairs.rejected_P


def test_an_option_that_there_is_not_is_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"label_smoothin.*did you mean label_smoothing"):
        PairLoss(function=losses_of_pairs, reads=("label_smoothin",))
