"""JSON of many small values, which takes a hundred times its bytes once it is read."""

import json
import random

import pytest

from cookhouse.server.refusals import TooLargeError
from cookhouse.server.wire import ValueCounter


def count(text: bytes, piece: int = 2**18) -> ValueCounter:
    counter = ValueCounter()
    for at in range(0, len(text), piece):
        counter.feed(text[at : at + piece])
    return counter


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b'{"x": [' + b"[]," * 70_000 + b"[]]}", "65536 lists and objects"),
        (b'{"x": [' + b"{}," * 70_000 + b"{}]}", "65536 lists and objects"),
        (b"[" * 70_000, "65536 lists and objects"),
        (b'{"x": [' + b"1," * 1_100_000 + b"1]}", "1048576 values"),
        (b'{"x": [' + b'"",' * 1_100_000 + b'""]}', "1048576 values"),
        (b'{"' + b'":1,"' * 1_100_000 + b'":1}', "1048576 values"),
    ],
)
def test_many_values_are_refused(text: bytes, what: str) -> None:
    with pytest.raises(TooLargeError, match=f"more than {what}; send less"):
        count(text)


def test_a_long_prompt_passes() -> None:
    """Would catch a bound that a request of the SDK's meets."""
    count(json.dumps({"prompt": {"chunks": [{"tokens": list(range(1_000_000))}]}}).encode())


@pytest.mark.parametrize("piece", [1, 2, 3, 50, 10**6])
def test_texts_are_no_values(piece: int) -> None:
    """Would catch a program that is refused for its brackets, and brackets that are hidden behind a quotation mark."""
    draw = random.Random(5)
    for _ in range(50):
        texts = ["".join(draw.choices('[]{},"\\ a\n', k=draw.randrange(12))) for _ in range(draw.randrange(1, 6))]
        counted = count(json.dumps([{text: [text]} for text in texts]).encode(), piece)
        assert (counted._num_containers, counted._num_values) == (1 + 2 * len(texts), len(texts) - 1), texts
