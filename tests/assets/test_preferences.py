"""The bundled preferences: what the generator writes, held out by content, polite against curt."""

import json
from typing import Any

import pytest
from scripts.write_preferences import NUM_DEMONSTRATIONS, NUM_TEST, NUM_TRAIN, demonstrations, rows

from cookhouse.assets import data_file


def read(name: str) -> list[dict[str, Any]]:
    text = data_file(f"preferences/{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(("name", "count"), [("train", NUM_TRAIN), ("test", NUM_TEST)])
def test_files_are_what_the_generator_writes(name: str, count: int) -> None:
    """Catches data that was edited by hand, or a generator that depends on hash order, platform or library version."""
    assert data_file(f"preferences/{name}.jsonl").read_bytes() == rows(count, held_out=name == "test").encode()
    assert len(read(name)) == count


@pytest.mark.parametrize(("name", "count"), NUM_DEMONSTRATIONS.items())
def test_demonstrations_are_what_the_generator_writes_polite_as_often_as_not(name: str, count: int) -> None:
    # Catches demonstrations that teach the preference, so that nothing would be left for the reward.
    written = data_file(f"preferences/demonstrations_{name}.jsonl").read_bytes()
    assert written == demonstrations(count, held_out=name == "test").encode()
    answers = [row["messages"][-1]["content"] for row in read(f"demonstrations_{name}")]
    assert len(answers) == count
    assert 0.4 < sum(answer.startswith("Could you please ") for answer in answers) / count < 0.6


def test_the_polite_answer_is_preferred_whichever_way_the_order_is_given() -> None:
    """Catches a preference that could be learned by copying the question, or by doing the opposite."""
    for name in ("train", "test"):
        rows_ = read(name)
        assert all(row["chosen"].startswith("Could you please ") for row in rows_)
        assert all(row["rejected"].lower()[:-1] == row["chosen"][17:-1] for row in rows_)
        given = [row["prompt"].endswith(row["chosen"]) for row in rows_]
        assert all(row["prompt"].endswith((row["chosen"], row["rejected"])) for row in rows_)
        assert 0.4 < sum(given) / len(given) < 0.6


def test_no_held_out_order_is_trained_on() -> None:
    train, test = ({row["chosen"] for row in read(name)} for name in ("train", "test"))
    assert train.isdisjoint(test)
    assert (len(train), len(test)) == (NUM_TRAIN, NUM_TEST)
