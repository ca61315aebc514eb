"""Plain rules of whether an answer says what was expected."""

from decimal import Decimal

import pytest

from cookhouse.errors import InputError
from cookhouse.grading.matches import check_pattern, contains_text, has_pattern, is_text, number_in

pytestmark = pytest.mark.anyio


def test_texts_are_compared_without_white_space_at_the_ends() -> None:
    assert is_text(" Paris\n", "Paris")
    assert not is_text("paris", "Paris")
    assert is_text("PARIS", "paris", ignore_case=True)
    assert contains_text("It is Paris.", "Paris")
    assert not contains_text("It is paris.", "Paris")
    assert contains_text("It is paris.", "Paris", ignore_case=True)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", "7"),
        ("2 + 3 is 5.", "5"),
        ("It is -4.50 degrees", "-4.50"),
        ("It is −4", "-4"),
        ("1,234,567 people", "1234567"),
        ("in 12,34", "34"),
        ("from 2-3", "3"),
        ("1.5e3", "1.5e3"),
        ("v2 and x3", "3"),
        (r"first 9, so \boxed{8}, not 7", "8"),
        ("so 9\n#### 8", "8"),
        ("none", None),
        ("", None),
    ],
)
def test_the_number_of_an_answer_is_the_marked_or_the_last_one(text: str, number: str | None) -> None:
    assert number_in(text) == (None if number is None else Decimal(number))


def test_a_long_answer_is_read_at_its_end() -> None:
    # A pattern that backtracks over digits would not come to an end here.
    assert number_in("1" * 300_000 + " 7") == 7
    assert number_in("," * 300_000) is None


async def test_a_pattern_is_found_anywhere() -> None:
    assert await has_pattern("It is Paris.", r"\bParis\b") is True
    assert await has_pattern("It is Rome.", r"\bParis\b") is False
    assert await has_pattern("it's \\ '\"\n", r"'\"\n$") is True


async def test_a_pattern_that_comes_to_no_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a row that stops an evaluation for hours."""
    assert await has_pattern("a" * 60, "(a+)+$|b") is True
    monkeypatch.setattr("cookhouse.grading.matches._SECONDS", 0.5)
    assert await has_pattern("a" * 60 + "!", "^(a+)+$") is None


@pytest.mark.parametrize("pattern", ["(", "a" * 1001, "(?P<x>a)(?P<x>b)", "a{99999999999999999999}"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InputError, match="pattern"):
        check_pattern(pattern)
