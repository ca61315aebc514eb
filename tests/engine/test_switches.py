"""Ways to compute that wait for a GPU's figures are off until the environment names them."""

from collections.abc import Iterator
from typing import get_args

import pytest

from cookhouse.engine import switches
from cookhouse.errors import InputError


@pytest.fixture(autouse=True)
def read_anew() -> Iterator[None]:
    switches._chosen.cache_clear()
    yield
    switches._chosen.cache_clear()


@pytest.mark.parametrize(
    ("value", "expected"), [(None, set()), ("", set()), ("fa3", {"fa3"}), (" fa3, fla,", {"fa3", "fla"})]
)
def test_those_that_are_named_are_on(value: str | None, expected: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch one that is on by default, so that users compute in a way that nothing has measured."""
    monkeypatch.delenv(switches.VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(switches.VARIABLE, value)
    assert {name for name in get_args(switches.Switch) if switches.is_on(name)} == expected


def test_one_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a measurement of a misspelled switch, of which both sides are the same."""
    monkeypatch.setenv(switches.VARIABLE, "fa3,fa4")
    with pytest.raises(InputError, match="names fa4; use any of wide_products, fa3"):
        switches.is_on("fla")


def test_the_head_names_every_switch() -> None:
    """Would catch one that no user can learn of."""
    lines = (switches.__doc__ or "").splitlines()
    assert {line.split()[0] for line in lines[4:] if line} == set(get_args(switches.Switch))
