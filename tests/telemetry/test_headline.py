from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from cookhouse.telemetry import CHOSEN, Headline, choose_headline, find_metric, number, ranked


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.123456, "0.12346"), (-0.0, "0"), (1234.0, "1,234"), (979123.4, "979,123"), (4e-5, "4e-05"), (2e12, "2e+12")],
)
def test_numbers_are_short(value: float, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("test/exact_match", 0.96, "96%"),
        ("test/exact_match/add", 6 / 7, "85.7%"),
        ("test/exact_match_stderr", 0.02, "2%"),
        ("env/all/correct", -0.0, "0%"),
        ("test/accuracy", 1.0, "100%"),
        ("test/accuracy", 87.5, "87.5"),
        ("test/exact_match_n", 1.0, "1"),
        ("test/nll", 0.5, "0.5"),
        ("test/nll", None, "-"),
    ],
)
def test_a_share_is_read_in_percent_and_nothing_else_is(name: str, value: float | None, shown: str) -> None:
    # Catches a loss of 0.5 told as 50%, and an accuracy that a user has in percent told as 8750%.
    assert find_metric(name).text(value) == shown


@pytest.mark.parametrize(
    ("name", "before", "after", "shown"),
    [
        ("test/exact_match", 0.04, 0.96, "+92 points"),
        ("test/nll", 6.25, 0.25, "−6"),
        ("test/nll", 1.5, 1.5, "±0"),
        ("test/accuracy", 80.0, 87.5, "+7.5"),
    ],
)
def test_a_difference_has_its_sign_and_unit(name: str, before: float, after: float, shown: str) -> None:
    assert find_metric(name).difference_text(before, after) == shown


def chosen(*rows: Mapping[str, Any]) -> Headline | None:
    first = rows[0] if rows[0]["step"] == 0 else {}
    last = {name: row for row in rows for name in row}
    return choose_headline(last, first, lambda name: last.get(name, {}))


@pytest.mark.parametrize(
    ("first", "last", "text"),
    [
        ({"test/nll": 6, "test/exact_match": 0.0}, {"test/nll": 5, "test/exact_match": 0.96}, "exact match 0% → 96%"),
        ({"test/env/all/reward/total": -0.5}, {"test/env/all/reward/total": 0.9125}, "held-out reward -0.5 → 0.912"),
        ({"test/accuracy": 0.49, "test/dpo_loss": 0.7}, {"test/accuracy": 1}, "accuracy 49% → 100%"),
        ({"train/dpo_loss": 0.7, "optim/lr": 1.0}, {"train/dpo_loss": 0.2, "optim/lr": 0.0}, "training loss 0.7 → 0.2"),
        ({"test/bleu": 0.1, "test/bleu_n": 9, "train/loss": 6}, {"test/bleu": 0.5, "train/loss": 2}, "bleu 0.1 → 0.5"),
        ({"test/exact_match": 0.0, "train/loss": 6.38762}, {"train/loss": 0.5}, "training loss 6.39 → 0.5"),
        ({"test/exact_match": 0.04}, {"optim/lr": 0.5}, "exact match 4%"),
        ({"test/nll": 6}, {"test/nll": 5.123, "test/nll_stderr": 0.25}, "held-out loss 6 → 5.12 ± 0.25"),
        ({}, {"test/exact_match": 0.75}, "exact match 75%"),
    ],
)  # fmt: skip
def test_each_kind_of_run_is_told_by_what_tells_most_of_it(
    first: dict[str, float], last: dict[str, float], text: str
) -> None:
    # Catches "exact match 0% → 0%" of a run that was stopped before its second evaluation.
    headline = chosen({"step": 0, **first}, {"step": 9, **last})
    assert headline is not None
    assert headline.text == text


def test_nothing_that_tells_makes_no_headline() -> None:
    assert chosen({"step": 0, "optim/lr": 1.0, "test/nll": float("nan"), "train/loss": "high"}) is None


def test_what_is_held_out_goes_before_what_is_trained_on() -> None:
    names = ["train/loss", "test/mine", "test/mine_stderr", "test/nll_tokens", "test/nll", "time/step_seconds"]
    assert ranked(names) == ["test/nll", "test/mine", "train/loss"]


def test_the_metric_that_the_setting_names_goes_before_all_others() -> None:
    """Catches a setting that held-out metrics, or those measured before and after, go before."""
    rows = {"step": 0, "test/nll": 6.0, "train/loss": 6.0}, {"step": 9, "test/nll": 5.0, "test/polite/correct": 0.5}
    last = {name: row for row in rows for name in row}
    for name, text in (("train/loss", "training loss 6"), ("test/polite/correct", "polite/correct 50%")):
        own = {name: replace(find_metric(name), headline=CHOSEN)}
        headline = choose_headline(["test/nll"], rows[0], lambda name: last.get(name, {}), own)
        assert headline is not None
        assert headline.text == text
    own = {"test/unknown": replace(find_metric("test/unknown"), headline=CHOSEN)}
    headline = choose_headline(["test/nll"], rows[0], lambda name: last.get(name, {}), own)
    assert headline is not None
    assert headline.name == "test/nll"
