"""What equals what a test expects, and in which time."""

import decimal
import fractions
import json
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cookhouse.grading.comparison import is_same_text, is_same_value
from cookhouse.grading.harness.plain import dumps, loads

_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
_KEYS = st.integers() | st.text() | st.booleans() | st.tuples(st.integers(), st.text())
_VALUES = st.recursive(
    _LEAVES
    | st.sets(_KEYS)
    | st.frozensets(_KEYS)
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.dates()
    | st.times(),
    lambda inner: st.lists(inner) | st.dictionaries(_KEYS, inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@given(_VALUES)
def test_plain_values_survive(value: Any) -> None:
    """Catches a value or type that changes on its way between judge and solution."""
    result = loads(dumps(value))
    assert result == value
    assert type(result) is type(value)


@given(_VALUES)
def test_a_value_equals_itself(value: Any) -> None:
    """Catches right answers that are refused, such as sets written in another order."""
    assert is_same_value(dumps(value), value)


@given(_VALUES, _VALUES)
def test_equality_is_python_s(left: Any, right: Any) -> None:
    """Catches a comparison that takes what differs for equal, but for floats that are near and keys as JSON's."""
    if is_same_value(dumps(left), right):
        assert _is_similar(left, right)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((1, 2), [1, 2]),
        ([(1,)], [[1]]),
        (1, 1.0),
        (True, 1),
        ({2: 1, 1.0: 2}, {1: 2, 2: 1}),
        ({1, 2}, {2.0, 1.0}),
        (range(2), range(2)),
        (0.1 + 0.2, 0.3),
        (1e15 + 1, 1e15),
        ([[1 / 3], (2,)], [[0.33333], [2.0]]),
        ({"a": 0.1 + 0.2}, {"a": 0.3}),
        ({0.1 + 0.2, 5}, {5, 0.3}),
        ({1: "a", 2: [3]}, {"2": [3], "1": "a"}),
        ({None: 1, True: 2, 0.5: 3, 10**400: 4}, {"null": 1, "true": 2, "0.5": 3, str(10**400): 4}),
        (fractions.Fraction(4, 2), 2),
        (decimal.Decimal("0.30"), 0.3),
        pytest.param(10**5000 + 1, 10**5000 + 1, id="long"),
    ],
)
def test_equal_values(value: Any, expected: Any) -> None:
    """Catches a right result that judges take and this comparison refuses."""
    assert is_same_value(dumps(value), expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([1, 2], {1, 2}),
        (1, "1"),
        (None, 0),
        ([], None),
        ({"a": 1}, {"a": 2}),
        (float("nan"), 1.0),
        ([1], [1, 2]),
        ("set", {1}),
        (fractions.Fraction(10**17 * 3 + 1, 3), 10**17),
        (0.31, 0.3),
        (1.0000001, 1),
        (10**16 + 1, 10**16),
        pytest.param(10**5000 + 1, 10**5000, id="long"),
        (0.3001, 0.3),
        ("0.3", 0.3),
        ({"1": "a"}, {1: "a"}),
        ({1: "a"}, {"2": "a"}),
        ({1: 2, "1": 2}, {"1": 2}),
        ({1: 0.2}, {"1": 0.3}),
        ({0.2}, {0.3}),
        (float("inf"), 1e308),
        (10**400, 1.0),
    ],
)
def test_different_values(value: Any, expected: Any) -> None:
    assert not is_same_value(dumps(value), expected)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null null",
        '{"handle": 0}',
        '{"a": 1, "b": 2}',
        '{"set": 3}',
        '{"dict": [[1]]}',
        "[" * 100_000,
        '{"int": []}',
        "9" * 5000,
        "1e999",
        '{"set": [1e999]}',
        '{"dict": [[-1e999, 1]]}',
        '{"set": [NaN, Infinity]}',
        '{"set": [1], "set": [2, 1e999]}',
        '{"set": {"a": [1e999]}}',
        '{"dict": ["ab", "cd"]}',
        '"\\ud800"',
        "\ufffd\0",
    ],
)
def test_what_the_harness_never_writes_equals_nothing(text: str) -> None:
    """Catches an exception in the process that trains, raised by what a solution printed."""
    for expected in ([1], {1.5}, {"a": 1}, float("inf")):
        assert not is_same_value(text, expected)


_HOSTILE = st.recursive(
    st.sampled_from([float("inf"), float("-inf"), float("nan"), 10**4000, 1, True, None, "0x", "\ud800"]) | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["set", "dict", "tuple", "same", "int", "x"]), inner, max_size=1)
    ),
)


@given(_HOSTILE, st.binary())
def test_whatever_a_solution_sends_is_read(value: Any, data: bytes) -> None:
    """Catches an exception for a form of output that nobody thought of."""
    for text in (json.dumps(value), json.dumps({"set": [value, value]}), data.decode(errors="replace")):
        is_same_value(text, {1})
        is_same_text(text, "1.5 2")


def test_deep_sets_take_memory_in_proportion_to_what_was_printed() -> None:
    """Catches a sort key that doubles with each level: fifty characters would then take all memory."""
    tracemalloc.start()
    assert not is_same_value('{"set": [' + "[" * 24 + "1" + "]" * 24 + "]}", {1})
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 1 << 20


def test_numbers_of_one_hash_take_no_time() -> None:
    """Catches a set or dictionary built from a solution's output: these would take minutes."""
    many = "[" + ",".join(str(i * ((1 << 61) - 1)) for i in range(40_000)) + "]"
    start = time.process_time()
    assert not is_same_value('{"set": ' + many + "}", {1})
    assert not is_same_text(many.replace(",", " "), "1")
    assert time.process_time() - start < 5.0


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        *[("8", "8\n"), ("1 2 \n3", "1 2\n3\n\n"), ("1.0 2", "1 2.0"), ("a  b", "a b"), ("", "\n"), ("1e3", "1000")],
        *[
            ("0.30000000000000004", "0.3"),
            ("0.333333", "0.3333333333"),
            ("1000000.5", "1000000.0"),
            ("-0.0000005", "0.0"),
        ],
        *[("1", "0.9999999"), ("2e-7", "1e-7"), ("nan", "nan"), ("inf", "inf")],
    ],
)
def test_same_text(printed: str, expected: str) -> None:
    """Catches a right float refused for its last digits."""
    assert is_same_text(printed, expected)


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("8", "9"),
        ("1\n2", "1 2"),
        ("12", "1 2"),
        ("a b", "ab"),
        ("NaN", "1"),
        ("A", "a"),
        ("", "0"),
        ("1e999999999999", "1"),
        ("0.33333", "0.3333333333"),
        ("1.00001", "1.0"),
        ("10000000000000001", "10000000000000000"),
        ("1000000.0000001", "1000000"),
        ("0.9999999", "1"),
        ("1e400", "2e400"),
        ("1e400", "1.5"),
        ("1_0", "10"),
        ("x1.0000001", "x1.0"),
    ],
)
def test_different_text(printed: str, expected: str) -> None:
    """Catches a tolerance that reaches integers and words."""
    assert not is_same_text(printed, expected)


def _is_similar(value: Any, expected: Any) -> bool:
    if isinstance(expected, (list, tuple)):
        return len(value) == len(expected) and all(map(_is_similar, value, expected))
    if isinstance(expected, dict):
        if all(isinstance(key, str) for key in expected):
            value = {key if isinstance(key, str) else json.dumps(key): item for key, item in value.items()}
        return set(value) == set(expected) and all(_is_similar(value[key], item) for key, item in expected.items())
    if isinstance(expected, float | complex):
        return bool(value == expected or abs(value - expected) <= 1.5e-5 * max(1, abs(value), abs(expected)))
    return bool(value == expected)
