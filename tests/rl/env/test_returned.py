"""What functions of a user's own return: every number, and nothing else; what is kept of it is a copy."""

from collections import OrderedDict, UserList
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from cookhouse.callables.copies import own_copy
from cookhouse.callables.returned import number_of


@pytest.mark.parametrize(
    "value", [True, np.isclose(1, 1), np.ones(1).sum(), Decimal(1), Fraction(1), torch.tensor(1.0)]
)
def test_numbers_of_any_library_are_taken(value: object) -> None:
    assert number_of(value) == 1


@pytest.mark.parametrize("value", [None, "1", b"1", 1j, np.complex64(1 + 2j), 10**400, [1], np.ones(2), UserList([1])])
def test_what_is_no_number_is_none(value: object) -> None:
    """Would catch half of a complex number, or a text, as a reward."""
    assert number_of(value) is None


def test_what_is_kept_does_not_change_with_its_original() -> None:
    """Would catch a conversation that grows where the run keeps it."""

    class Turns(list[Any]):
        pass

    given = Turns([OrderedDict(role="user", content=[{"text": "q"}], ids=np.arange(2))])
    kept = own_copy(given)
    given[0]["content"][0]["text"], given[0]["ids"][0] = "changed", 7
    given.append({})
    assert len(kept) == 1
    assert kept[0]["content"] == [{"text": "q"}]
    assert kept[0]["ids"].tolist() == [0, 1]
