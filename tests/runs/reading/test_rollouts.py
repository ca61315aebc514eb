"""Rollouts of a run directory: what its writer wrote is what the index and the groups say."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.runs.reading.rollout_files import group, turn, write_groups, write_values

from cookhouse.errors import InputError
from cookhouse.runs.reading import transcripts
from cookhouse.runs.reading.rollouts import index_rollouts, read_group, rollout_steps, rollouts_file
from cookhouse.runs.reading.skeleton import read_text
from cookhouse.runs.reading.token_values import advantages_file, index_values, read_values, values_of
from cookhouse.runs.reading.transcripts import TokenValues, read_pieces, read_tokens, shared_prefix, turn_starts

LONG = [*range(1000, 1600)]


def test_the_index_says_what_the_writer_wrote(tmp_path: Path) -> None:
    # Catches a writer and a reader that drift apart.
    groups = [
        group([turn([1, 2], [3], reward=0.25), turn([1, 2, 3, 4], [5, 6], reward=1.0)], [turn([1, 2], LONG)]),
        group([turn(LONG, LONG, reward=-1.0)], rewards=[0.5]),
    ]
    path = write_groups(rollouts_file(tmp_path, 2, is_test=False), groups)
    index = index_rollouts(path)
    assert [facts.rewards for facts in index.groups] == [tuple(each.get_total_rewards()) for each in groups]
    assert [facts.num_sampled for facts in index.groups] == [(3, 600), (600,)]
    assert [facts.num_turns for facts in index.groups] == [(2, 1), (1,)]
    assert index.num_rollouts == 3
    assert [facts.tags for facts in index.groups] == [("sums",)] * 2
    read = read_group(index, 0)
    assert (read.version, read.seconds) == (3, 1.5)
    assert [each.reward for each in read.rollouts[0].turns] == [0.25, 1.0]
    assert read_tokens(read.rollouts[0], 0, 100) == [1, 2, 3, 4, 5, 6], "an observation shows what is new"
    assert read_tokens(read_group(index, 1).rollouts[0], 599, 3) == [1599, 1000, 1001]


def test_what_is_appended_is_read_alone(tmp_path: Path) -> None:
    # Catches a step under way whose file is read whole again for each group.
    path = write_groups(rollouts_file(tmp_path, 0, is_test=True), [group([turn([1], [2])])])
    first = index_rollouts(path)
    assert index_rollouts(path, first) is first
    write_groups(path, [group([turn([1], [2], reward=1.0)])])
    second = index_rollouts(path, first)
    assert second.groups[0] is first.groups[0]
    assert [facts.number for facts in second.groups] == [0, 1], "held-out groups are numbered by their lines"
    path.write_text("")
    assert index_rollouts(path, second).groups == ()
    assert index_rollouts(tmp_path / "absent.jsonl").groups == ()


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "[]",
        "nothing",
        '{"number":"x","group":{}}',
        '{"number":0,"group":[1]}',
        '{"number":1e999,"group":{"trajectories":[]}}',
    ],
)
def test_a_broken_line_is_a_problem_of_its_own(tmp_path: Path, line: str) -> None:
    # Catches one torn line that hides all others.
    path = write_groups(rollouts_file(tmp_path, 0, is_test=False), [group([turn([1], [2])])], first=7)
    with path.open("a") as file:
        file.write(line + "\n")
    index = index_rollouts(path)
    assert index.groups[0].problem is None
    assert index.groups[1].problem
    with pytest.raises(InputError):
        read_group(index, 1)
    with pytest.raises(InputError, match="no group 99"):
        read_group(index, 99)


def test_the_files_of_a_run(tmp_path: Path) -> None:
    for name in ("000000", "000011", "test-000004", "advantages-000000", "steps", "trained-000001"):
        write_values(tmp_path / "rollouts" / f"{name}.jsonl", "x", {})
    assert rollout_steps(tmp_path, is_test=False) == [0, 11]
    assert rollout_steps(tmp_path, is_test=True) == [4]


def test_where_rollouts_part(tmp_path: Path) -> None:
    # Catches a prefix that ends with the prompt, although all say the same for a while, and one that a block ends.
    alike = [7] * 5000
    path = write_groups(
        rollouts_file(tmp_path, 0, is_test=False),
        [
            group([turn([1, 2], [3, 4])], [turn([1, 2], [3, 5])]),
            group([turn(alike, [3])], [turn(alike, [4])], [turn(alike, [3])]),
            group([turn([1], [2])], [turn([1], [2])]),
            group([turn([1], [2])], [turn([1], [2, 3])]),
            group([turn([1], [2])]),
        ],
    )
    index = index_rollouts(path)
    assert [shared_prefix(read_group(index, number).rollouts) for number in range(5)] == [3, 5000, 2, 2, 0]


def test_a_range_of_a_rollout_with_its_values(tmp_path: Path) -> None:
    # Catches values that are shifted against their tokens, and a prompt that got some.
    turns = [turn([1, 2], [3, 4], logprobs=[-1.0, -2.0]), turn([1, 2, 3, 4, 5], LONG, logprobs=[-0.25] * 600)]
    index = index_rollouts(write_groups(rollouts_file(tmp_path, 4, is_test=False), [group(turns)]))
    file = write_values(
        advantages_file(tmp_path, 4), "advantages", {(4, 0): [[0.5, [float(number) for number in range(600)]]]}
    )
    found = read_values(index_values(file, "advantages"), (4, 0))
    assert found is not None
    [rollout] = read_group(index, 0).rollouts
    pieces = read_pieces(rollout, 3, 200, TokenValues(advantages=found[0]))
    assert [(each.turn, each.is_sampled, each.start, each.begins_turn) for each in pieces] == [
        (0, True, 3, False),
        (1, False, 4, True),
        (1, True, 5, False),
    ]
    assert [each.tokens[0] for each in pieces] == [4, 5, 1000]
    assert [each.before for each in pieces] == [[3], [4], [5]]
    assert (pieces[0].logprobs, pieces[0].advantages) == ([-2.0], [0.5])
    assert (pieces[1].logprobs, pieces[1].advantages) == (None, None)
    assert pieces[2].advantages == list(range(198))
    assert pieces[2].trained is None
    assert turn_starts(rollout) == [0, 4]


def test_values_that_are_missing(tmp_path: Path) -> None:
    path = write_values(
        advantages_file(tmp_path, 0), "advantages", {(0, 1): [[None, [1.0, None]]], (0, 2): {"a": 1}, (0, 3): [["x"]]}
    )
    file = index_values(path, "advantages")
    assert read_values(file, (0, 0)) is None
    found = read_values(file, (0, 1))
    assert found is not None
    assert [values_of(each, 0, 3) for each in found[0]] == [[None] * 3, [1.0, None, None]]
    for number in (2, 3):
        with pytest.raises(InputError, match="holds no advantages"):
            read_values(file, (0, number))
    assert index_values(tmp_path / "absent.jsonl", "advantages").of_group == {}


def test_a_transcript_of_many_megabytes_is_read_by_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches a page that parses every token of a line to show a few.
    value = json.loads(
        write_groups(tmp_path / "one.jsonl", [group([turn([1], LONG, logs={"text": "<script>" * 1000})])]).read_text()
    )
    value["group"]["trajectories"][0]["turns"][0]["tokens"] = [*range(200_000)]
    path = rollouts_file(tmp_path, 0, is_test=False)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value) + "\n")
    index = index_rollouts(path)
    parsed: list[int] = []
    loads = json.loads

    def counting(text: bytes, **options: Any) -> Any:
        parsed.append(len(text))
        return loads(text, **options)

    monkeypatch.setattr(json, "loads", counting)
    [rollout] = read_group(index, 0).rollouts
    assert read_tokens(rollout, 150_001, 3) == [150_000, 150_001, 150_002]
    assert read_text(rollout.turns[0].logs["text"], 8)[0] == "<script>"
    assert sum(parsed) < 5000


def test_long_rollouts_that_are_alike_are_read_in_few_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches a prefix whose cost grows with the square of its length: each block is found from the beginning.
    said = [7] * 200_000
    index = index_rollouts(write_groups(tmp_path / "000000.jsonl", [group([turn([1], said)], [turn([1], [*said, 8])])]))
    num_read = 0

    def counting(*args: Any) -> list[int]:
        nonlocal num_read
        num_read += 1
        return read_tokens(*args)

    monkeypatch.setattr(transcripts, "read_tokens", counting)
    assert shared_prefix(read_group(index, 0).rollouts) == 200_001
    assert num_read < 20
