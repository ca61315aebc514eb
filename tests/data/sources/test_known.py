"""Data sets that people know: their fields as ours, and what is held out of them. Rows are made up in their form."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.data.hub import write_set

from cookhouse.data import DataSource, data_source, from_store, held_out_source, num_rows, read_conversations
from cookhouse.data.rows.pairs import read_preferences, read_prompts
from cookhouse.data.sources.hub import HubDatasetStore
from cookhouse.data.sources.known import KnownSet
from cookhouse.data.sources.registry import DATASETS
from cookhouse.errors import InputError

CHAT = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
ASKED, CHOSEN, REJECTED = [CHAT[0]], {"role": "assistant", "content": "good"}, {"role": "assistant", "content": "bad"}


def write(root: Path, name: str, splits: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """A set with the same rows in each configuration that is read."""
    known = DATASETS.find(name)
    assert isinstance(known, KnownSet)
    write_set(root / known.train.name, {config or "default": splits for config in known.train.configs})


def opened(root: Path, name: str) -> DataSource:
    return from_store(data_source(name), HubDatasetStore(mirror=root))


def held_out(root: Path, name: str) -> DataSource:
    source = held_out_source(data_source(name))
    assert source is not None
    return from_store(source, HubDatasetStore(mirror=root))


@pytest.mark.parametrize(
    ("name", "row", "said"),
    [
        ("no_robots", {"prompt": "q", "prompt_id": "0", "messages": CHAT, "category": "Chat"}, ["q", "a"]),
        ("tulu3", {"id": "0", "messages": CHAT, "source": "flan"}, ["q", "a"]),
        (
            "openthoughts3",
            {
                "difficulty": 3,
                "source": "s",
                "domain": "math",
                "conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}],
            },
            ["q", "a"],
        ),
        ("gsm8k", {"question": "q", "answer": "1 + 1 = 2\n#### 2"}, ["q", "1 + 1 = 2\n#### 2"]),
        ("math", {"problem": "q", "level": "5", "type": "Algebra", "solution": "\\boxed{2}"}, ["q", "\\boxed{2}"]),
        ("deepmath", {"question": "q", "final_answer": "2", "r1_solution_1": "s"}, ["q", "s"]),
    ],
)
def test_conversations_of_a_known_set(tmp_path: Path, name: str, row: dict[str, Any], said: list[str]) -> None:
    write(tmp_path, name, {"train": [row, row], "test": [row]})
    (first, *_) = read_conversations(opened(tmp_path, name))
    assert [message["content"] for message in first.messages] == said


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("hh", {"chosen": "\n\nHuman: q\n\nAssistant: good", "rejected": "\n\nHuman: q\n\nAssistant: bad"}),
        ("ultrafeedback", {"instruction": "q", "chosen_response": "good", "rejected_response": "bad", "source": "s"}),
        (
            "helpsteer3",
            {"domain": "d", "context": ASKED, "response1": "good", "response2": "bad", "overall_preference": -2},
        ),
        (
            "helpsteer3",
            {"domain": "d", "context": ASKED, "response1": "bad", "response2": "good", "overall_preference": 1},
        ),
        (
            "arena",
            {
                "winner": "model_b",
                "conversation_a": [
                    {"role": "user", "content": [{"type": "text", "text": "q", "image": None}]},
                    {"role": "assistant", "content": [{"type": "text", "text": "bad", "image": None}]},
                ],
                "conversation_b": [
                    {"role": "user", "content": [{"type": "text", "text": "q", "image": None}]},
                    {"role": "assistant", "content": [{"type": "text", "text": "good", "image": None}]},
                ],
            },
        ),
    ],
)
def test_preferences_of_a_known_set(tmp_path: Path, name: str, row: dict[str, Any]) -> None:
    # Catches answers that are swapped.
    rows = [row] * 3
    write(tmp_path, name, {"train": rows, "test": rows, "validation": rows})
    (first, *_) = read_preferences(opened(tmp_path, name))
    assert (first.prompt, first.chosen, first.rejected) == (ASKED, [CHOSEN], [REJECTED])


def test_rows_that_prefer_nothing_are_left_out(tmp_path: Path) -> None:
    pair = {"chosen": "\n\nHuman: q\n\nAssistant: good", "rejected": "\n\nHuman: q\n\nAssistant: bad"}
    damaged = {"chosen": "\n\nHuman: other\n\nAssistant: good", "rejected": pair["rejected"]}
    write(tmp_path, "hh", {"train": [damaged, pair, {**pair, "rejected": pair["chosen"]}], "test": [pair]})
    assert len(read_preferences(opened(tmp_path, "hh"))) == 1
    tie = {"context": ASKED, "response1": "a", "response2": "b", "overall_preference": 0}
    write(tmp_path, "helpsteer3", {"train": [tie, {**tie, "overall_preference": 1}], "validation": [tie]})
    assert len(read_preferences(opened(tmp_path, "helpsteer3"))) == 1


def test_helpsteer2_pairs_the_answers_to_a_prompt(tmp_path: Path) -> None:
    rows = [
        {"prompt": prompt, "response": response, "helpfulness": helpfulness, "verbosity": 2}
        for prompt, response, helpfulness in (("q", "bad", 1), ("q", "good", 4), ("r", "a", 3), ("r", "b", 3))
    ]
    write(tmp_path, "helpsteer2", {"train": rows, "validation": rows})
    (only,) = read_preferences(opened(tmp_path, "helpsteer2"))
    assert (only.prompt, only.chosen, only.rejected) == (ASKED, [CHOSEN], [REJECTED])


@pytest.mark.parametrize(
    ("name", "row", "answer"),
    [
        ("gsm8k", {"question": "q", "answer": "so\n#### 1,000"}, "1000"),
        ("math500", {"problem": "q", "solution": "\\boxed{2}", "answer": "2"}, "2"),
        ("polaris", {"problem": "q", "answer": "2", "difficulty": "1/8"}, "2"),
        ("deepcoder", {"problem": "q", "tests": "[]", "starter_code": ""}, None),
    ],
)
def test_problems_of_a_known_set(tmp_path: Path, name: str, row: dict[str, Any], answer: str | None) -> None:
    write(tmp_path, name, {"train": [row], "test": [row]})
    (first, *_) = read_prompts(opened(tmp_path, name))
    assert (first.prompt, first.answer) == (ASKED, answer)


def test_what_is_held_out_is_drawn_as_the_reference_draws_it(tmp_path: Path) -> None:
    """Of tulu3, the first 1024 rows after a shuffle with seed 0 by `datasets`; catches other test rows, and overlap."""
    import datasets

    ids = [f"{number:04}" for number in range(1500)]
    rows = [{"id": each, "messages": CHAT} for each in ids]
    write(tmp_path, "tulu3", {"train": rows})
    expected = datasets.Dataset.from_list([{"id": each} for each in ids]).shuffle(seed=0)["id"][: 1500 // 2]
    test = [c.extra["id"] for c in read_conversations(held_out(tmp_path, "tulu3"))]
    train = [c.extra["id"] for c in read_conversations(opened(tmp_path, "tulu3"))]
    assert sorted(test) == sorted(expected)  # half of them, since there are fewer than twice 1024
    assert sorted([*test, *train]) == ids


def test_ultrafeedback_holds_out_its_first_rows(tmp_path: Path) -> None:
    rows = [{"instruction": str(n), "chosen_response": "good", "rejected_response": "bad"} for n in range(4)]
    write(tmp_path, "ultrafeedback", {"train": rows})
    held = read_preferences(held_out(tmp_path, "ultrafeedback"))
    assert [row.prompt[0]["content"] for row in held] == ["0", "1"]


def test_a_split_of_the_hub_is_held_out(tmp_path: Path) -> None:
    row = {"prompt": "q", "prompt_id": "0", "messages": CHAT, "category": "Chat"}
    write(tmp_path, "no_robots", {"train": [row] * 5, "test": [row] * 2})
    assert (num_rows(opened(tmp_path, "no_robots").rows), num_rows(held_out(tmp_path, "no_robots").rows)) == (5, 2)
    assert held_out_source(data_source("polaris")) is None
    assert held_out_source(data_source(str(tmp_path / "rows.jsonl"))) is None


def test_a_row_without_the_fields_of_its_set_is_a_bad_row(tmp_path: Path) -> None:
    write(tmp_path, "gsm8k", {"train": [{"question": "q", "answer": "2"}], "test": [{"question": "q", "answer": "2"}]})
    with pytest.raises(InputError, match="the answer has no #### before its number"):
        read_conversations(opened(tmp_path, "gsm8k"))
    write(tmp_path, "polaris", {"train": [{"question": "q"}]})
    with pytest.raises(InputError, match="it has not the fields of its set: KeyError: 'problem'"):
        read_prompts(opened(tmp_path, "polaris"))


def test_every_known_set_is_found() -> None:
    for name in DATASETS.builtin:
        assert isinstance(DATASETS.find(name), KnownSet)
