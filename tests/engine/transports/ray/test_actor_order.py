"""Commands that Ray brings in any order, or twice, are carried out in theirs, and once."""

import random

from cookhouse.engine.transports.ray.actor import InOrder


def test_whatever_order_they_come_in_they_go_out_in_theirs_and_once() -> None:
    for seed in range(50):
        numbers = [*range(20), *range(0, 20, 3)]
        random.Random(seed).shuffle(numbers)
        in_order: InOrder[str] = InOrder()
        given = [value for number in numbers for value in in_order.put(number, str(number))]
        assert given == [str(number) for number in range(20)]


def test_what_is_missing_holds_up_the_rest() -> None:
    in_order: InOrder[str] = InOrder()
    assert in_order.put(1, "b") == []
    assert in_order.put(2, "c") == []
    assert in_order.put(0, "a") == ["a", "b", "c"]
    assert in_order.put(1, "again") == []
