"""Values with their errors in words: intervals of shares, standard errors of means, digits by the error."""

import pytest

from cookhouse.errors import InputError
from cookhouse.telemetry import Metric, error_text, measured_text, wilson_interval

SHARE = Metric("test/correct", is_share=True)
MEAN = Metric("test/nll")


@pytest.mark.parametrize(
    ("successes", "n", "expected"),
    [
        # As in the table of https://doi.org/10.1002/(SICI)1097-0258(19980430)17:8<857::AID-SIM777>3.0.CO;2-E
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
        (20, 20, (0.8389, 1.0)),
    ],
)
def test_wilsons_interval(successes: float, n: int, expected: tuple[float, float]) -> None:
    assert wilson_interval(successes, n) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (2, 1), (-1, 3)])
def test_what_is_no_share_has_no_interval(successes: float, n: int) -> None:
    with pytest.raises(InputError, match="is no share"):
        wilson_interval(successes, n)


@pytest.mark.parametrize(
    ("metric", "value", "stderr", "n", "text"),
    [
        (SHARE, 1.0, 0.0, 6, "100%, 61 to 100%, of 6"),
        (SHARE, 0.0, 0.0, 7, "0%, 0 to 35%, of 7"),
        (SHARE, 1.0, None, 1, "100%, 21 to 100%, of 1"),
        (SHARE, 0.873, 0.0033, 10000, "87.3%, 86.6 to 87.9%, of 10,000"),
        (SHARE, 0.5, 0.05, None, "50.0% ± 5.0%"),
        (SHARE, 1.0, 0.0, None, "100%, all equal"),
        (SHARE, 87.5, 1.25, 40, "87.5 ± 1.2, of 40"),
        (SHARE, None, None, 5, "-"),
        (MEAN, 2.34567, 0.0123, None, "2.35 ± 0.01"),
        (MEAN, 0.6634, 0.1142, 16, "0.66 ± 0.11, of 16"),
        (MEAN, 12.3456, 0.0123, None, "12.3 ± 0.01"),
        (MEAN, 1234.5, 21.0, None, "1,234 ± 21"),
        (MEAN, -0.00012, 0.00003, None, "-0.000120 ± 0.000030"),
        (MEAN, 2.5, 0.0, 8, "2.5, all 8 equal"),
        (MEAN, 2.5, None, None, "2.5"),
        (MEAN, float("nan"), 0.1, 8, "nan"),
        (MEAN, 2.5, float("nan"), 8, "2.5, of 8"),
    ],
)
def test_a_value_has_the_digits_that_its_error_leaves(
    metric: Metric, value: float | None, stderr: float | None, n: float | None, text: str
) -> None:
    # Catches ± 0% where all answers agree, and digits that mean nothing.
    assert measured_text(metric, value, stderr, n) == text


def test_items_that_go_together_are_worth_less() -> None:
    # Catches an interval as narrow as if 16 answers to one problem were 16 problems.
    alone, together = (measured_text(SHARE, 0.5, stderr, 64) for stderr in ((0.25 / 63) ** 0.5, 0.125))
    assert alone == "50%, 38 to 62%, of 64"
    assert together == "50%, 29 to 71%, of 64"


def test_an_error_by_itself() -> None:
    assert (error_text(SHARE, 0.0234), error_text(MEAN, 0.02345)) == ("2.3%", "0.023")
