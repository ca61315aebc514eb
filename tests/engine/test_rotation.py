"""Who is next: equal shares of what is counted, whatever anyone asks for."""

from cookhouse.engine.rotation import Rotation


def _served(rotation: Rotation[str], costs: dict[str, float], num_turns: int) -> dict[str, float]:
    served = dict.fromkeys(costs, 0.0)
    for _ in range(num_turns):
        key = rotation.order()[0]
        rotation.charge(key, costs[key])
        served[key] += costs[key]
    return served


def test_each_gets_an_equal_share_by_weight() -> None:
    """Would catch turns that are counted, so that whoever asks for more in one gets more."""
    rotation: Rotation[str] = Rotation()
    for key in "abc":
        rotation.add(key)
    served = _served(rotation, {"a": 1.0, "b": 10.0, "c": 100.0}, 1000)
    assert max(served.values()) - min(served.values()) <= 100.0


def test_a_newcomer_goes_next_and_is_owed_nothing() -> None:
    """Would catch one that waits for what others took before, or that makes up for it at their cost."""
    rotation: Rotation[str] = Rotation()
    rotation.add("a")
    _served(rotation, {"a": 1.0}, 100)
    rotation.add("b")
    assert rotation.order()[0] == "b"
    served = _served(rotation, {"a": 1.0, "b": 1.0}, 10)
    assert abs(served["a"] - served["b"]) <= 1.0


def test_leaving_and_coming_back_gains_no_turn() -> None:
    """Would catch a tenant that sends one request at a time, and is always first."""
    rotation: Rotation[str] = Rotation()
    rotation.add("a")
    rotation.add("b")
    rotation.charge("a", 10.0)
    rotation.remove("a")
    rotation.add("a")
    assert rotation.order() == ["b", "a"]


def test_those_that_left_long_ago_are_forgotten() -> None:
    """Would catch memory that grows with every session that there ever was."""
    rotation: Rotation[str] = Rotation()
    rotation.add("stays")
    for index in range(10_000):
        rotation.add(str(index))
        rotation.charge(str(index), 1.0)
        rotation.remove(str(index))
        rotation.charge("stays", 1.0)
    assert len(rotation._idle) < 100


def test_among_equals_whoever_came_first_goes_first() -> None:
    rotation: Rotation[str] = Rotation()
    for key in "bca":
        rotation.add(key)
    assert rotation.order() == ["b", "c", "a"]
    assert rotation.first("ac") == "c"
