"""Finding rollouts by reward and by what they say."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.runs.reading.rollout_files import group, turn, write_groups

from cookhouse.runs.reading import rollout_texts
from cookhouse.runs.reading.rollout_filter import RolloutFilter, find_rollouts
from cookhouse.runs.reading.rollout_texts import read_texts
from cookhouse.runs.reading.rollouts import index_rollouts, rollouts_file

WORDS = ("What is 2+2? ", "Four.", "Five.", "Straße ")


class Decoder:
    def __init__(self) -> None:
        self.num_decoded = 0

    def __call__(self, several: Sequence[Sequence[int]]) -> list[str]:
        self.num_decoded += len(several)
        return ["".join(WORDS[token] for token in tokens) for tokens in several]


def test_by_reward_and_by_text(tmp_path: Path) -> None:
    path = rollouts_file(tmp_path, 0, is_test=False)
    write_groups(
        path,
        [
            group([turn([0], [1], reward=1.0)], [turn([0], [2], reward=-0.5)], [turn([0], [2], reward=math.nan)]),
            group([turn([3], [1], logs={"judge": "NOT convinced"})]),
        ],
    )
    index = index_rollouts(path)
    texts = read_texts(index, Decoder())

    def found(**wanted: Any) -> list[tuple[int, int]]:
        return [(each.group.number, each.member) for each in find_rollouts(index, RolloutFilter(**wanted), texts)]

    assert found() == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert found(min_reward=0.0) == [(0, 0), (1, 0)]
    assert found(min_reward=-0.5, max_reward=0.0) == [(0, 1), (1, 0)]
    assert found(text="fOUR") == [(0, 0), (1, 0)]
    assert found(text="four", min_reward=0.5) == [(0, 0)]
    assert found(text="convinced") == [(1, 0)]
    assert found(text="STRASSE") == []
    assert found(text="straße") == [(1, 0)]


def test_texts_are_decoded_once(tmp_path: Path) -> None:
    # Catches a search that decodes ten thousand rollouts for every letter that somebody types.
    path = write_groups(rollouts_file(tmp_path, 0, is_test=False), [group([turn([0], [1])])])
    decoder = Decoder()
    first = read_texts(index_rollouts(path), decoder)
    assert read_texts(index_rollouts(path), decoder, first) is first
    write_groups(path, [group([turn([0], [2])])], first=1)
    second = read_texts(index_rollouts(path), decoder, first)
    assert decoder.num_decoded == 2
    assert [*second.of_group] == [["what is 2+2? four."], ["what is 2+2? five."]]


def test_a_rollout_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    # Catches one hostile line that breaks the search of all.
    path = write_groups(rollouts_file(tmp_path, 0, is_test=False), [group([turn([0], [2])]), group([turn([0], [1])])])
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0].replace('"tokens":[2]', '"tokens":["x"]') + "{}\n" + lines[1])
    assert [*read_texts(index_rollouts(path), Decoder()).of_group] == [[""], [], ["what is 2+2? four."]]


def test_both_ends_of_a_long_rollout_are_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches a final answer that a search misses, and one that does not say what it leaves out.
    monkeypatch.setattr(rollout_texts, "END_TOKENS", 2)
    path = write_groups(
        rollouts_file(tmp_path, 0, is_test=False), [group([turn([0, 2], [1, 1, 3, 1])], [turn([0, 2], [1, 1])])]
    )
    texts = read_texts(index_rollouts(path), Decoder())
    assert texts.num_cut == 1
    assert texts.of_group[0][0] == "what is 2+2? five.straße four."


def test_without_a_tokenizer_logs_are_searched(tmp_path: Path) -> None:
    path = write_groups(rollouts_file(tmp_path, 0, is_test=False), [group([turn([0], [1], logs={"said": "Four"})])])
    assert read_texts(index_rollouts(path), None).of_group == [["\nfour"]]
