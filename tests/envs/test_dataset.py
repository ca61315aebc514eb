"""Order and size of data sets of groups."""

from collections.abc import Callable
from typing import Any

import chz
import pytest
from tests.envs.answers import configured

from cookhouse.envs import ArithmeticConfig, GroupDataset
from cookhouse.errors import InputError

pytestmark = pytest.mark.anyio


def numbers(**options: Any) -> GroupDataset[int]:
    make: Callable[[int], Any] = str
    return GroupDataset(range(10), make, **options)


def batches(dataset: GroupDataset[int], *, start: int = 0) -> list[Any]:
    return [dataset.get_batch(start + index) for index in range(len(dataset))]


def test_batches_are_the_same_at_every_call_and_cover_an_epoch() -> None:
    """Catches an order that depends on what was asked before."""
    dataset = numbers(batch_size=3)
    first, second = batches(dataset), batches(dataset, start=4)
    assert [len(batch) for batch in first] == [len(batch) for batch in second] == [3, 3, 3, 1]
    assert [dataset.get_batch(i) for i in (6, 0, 4)] == [second[2], first[0], second[0]]
    assert len({item for batch in first for item in batch}) == 10
    assert first == batches(numbers(batch_size=3))
    assert first != second
    assert first != batches(numbers(batch_size=3, seed=1))


def test_without_a_seed_the_order_is_that_of_the_problems() -> None:
    """Catches an evaluation whose problems move between rounds."""
    dataset = numbers(batch_size=10, seed=None)
    assert batches(dataset) == batches(dataset, start=1) == [[str(i) for i in range(10)]]


async def test_fewer_problems_to_test_on_are_spread_over_all() -> None:
    """Catches a test on the first problems of a file that is sorted by difficulty."""
    config = configured(ArithmeticConfig, batch_size=1, n_test_samples=4)
    everything = (await chz.replace(config, n_test_samples=None).build())[1].problems
    some = (await config.build())[1].problems
    assert list(some) == [everything[index * len(everything) // 4] for index in range(4)]


def test_a_data_set_can_be_shrunk() -> None:
    """Catches a smaller run that needs other data, and one that promises more batches than there are."""
    assert len(numbers(batch_size=3, n_batches=2)) == 2
    assert len(numbers(batch_size=3, n_batches=9)) == 4
    assert numbers(batch_size=3, n_batches=2).get_batch(0) == numbers(batch_size=3).get_batch(0)


def test_a_batch_larger_than_the_data_is_one_smaller_batch(caplog: pytest.LogCaptureFixture) -> None:
    dataset = numbers(batch_size=11)
    assert [len(batch) for batch in batches(dataset)] == [10]
    assert caplog.messages == ["batch_size is 11 and there are 10 problems: they make one batch"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": 3, "n_batches": 0}, "n_batches is 0"),
    ],
)
def test_an_impossible_size_is_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        numbers(**options)


@pytest.mark.parametrize("name", ["n_train_samples", "n_test_samples", "group_size"])
async def test_an_impossible_config_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} is 0; it must be at least 1"):
        await configured(ArithmeticConfig, **{name: 0}).build()
