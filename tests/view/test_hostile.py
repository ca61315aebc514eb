"""Everything that a run holds is hostile, and every page that leads from the list to it is asked for."""

import json
import re
import tracemalloc
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import tinker
from bench.run_folders import HOSTILE, make_run, write_hostile
from starlette.testclient import TestClient
from tests.view.evaluated import make_evaluation, make_trained, question_row
from tests.view.every_kind import followed
from tests.view.rl_run import group, ids, keep_answers, keep_rollouts, make_rl_run
from tests.view.sweeps import fail_run, make_sweep

from cookhouse.rl import TokensWithLogprobs, Trajectory, TrajectoryGroup, Transition, group_to_json
from cookhouse.runs.reading.rollouts import rollouts_file

LONG = HOSTILE + "y" * 1_000_000
_LINE_BYTES = 10 << 20
_MAX_PAGES = 150
_MAX_BYTES = 1 << 20
"""Of a page, whatever a run holds."""
_OBEYED = re.compile(r"<script>alert|<img|[\x00-\x08\x0b\x0c\x0e-\x1f\u202e]")


def test_nothing_that_a_run_holds_is_obeyed(client: TestClient, runs: Path) -> None:
    # Catches a text that any page takes for its own markup, one that is shown whole though it is long, a page that
    # fails, and a link that leads out of the page.
    make_hostile(runs)
    starts = ["/", "/experiments/", "/evaluations", "/evaluations/compare?run=a&run=b"]
    num_seen = 0
    for address, answer, found in followed(client, starts, max_pages=_MAX_PAGES):
        num_seen += 1
        assert answer.status_code in (200, 400), f"{address}: {answer.text[:2000]}"  # 400: a file that is not shown
        assert not _OBEYED.search(answer.text), address
        assert len(answer.content) < _MAX_BYTES, f"{address}: {len(answer.content):,} bytes"
        assert not [each for each in found if urlsplit(each).scheme not in ("", "data")], address
    assert num_seen > 20, "the list leads to what there is"


def test_text_that_is_no_unicode_is_spelled_out(client: TestClient, runs: Path) -> None:
    # Catches half of a character pair, which JSON can hold and no page, that makes a page fail.
    half = "a \ud800 b"
    run = make_rl_run(runs / "a", num_steps=2, **{half: half})
    keep_rollouts(run, 0, [group("2 + 2?", {" 4": 1.0, " 5": 0.0}, {"question": half, half: half})])
    keep_answers(run, 0, {half: (half, False)})
    keep_answers(run, 1, {half: (half, True)})
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 2, half: 1.0}) + "\n")
    asked = [question_row(0, half, group=half, name=half)]
    for name, score in (("exam-a", 0.0), ("exam-b", 1.0)):
        make_evaluation(runs / name, [score], questions=asked, texts={0: half})
    starts = ["/", "/evaluations/compare?run=exam-a&run=exam-b", "/runs/a/-/rollouts/1?text=%F0%9F"]
    pages = {address: answer for address, answer, _ in followed(client, starts)}
    assert {address: answer.status_code for address, answer in pages.items() if answer.status_code != 200} == {}
    shown = [address for address, answer in pages.items() if "a \\ud800 b" in answer.text]
    assert any("answers" in address for address in shown)
    assert any("group=0" in address for address in shown)


@pytest.mark.slow  # it writes and reads a file of 100 MB
def test_a_transcript_of_100_mb_is_read_by_ranges(client: TestClient, runs: Path) -> None:
    # Catches a page that shows a whole transcript.
    assert write_long(runs, 7_000_000) > 100_000_000
    look_at_long(client, 7_000_000)


@pytest.mark.slow  # every number that is read is counted
def test_memory_is_bounded_by_the_line_that_is_read(client: TestClient, runs: Path) -> None:
    # Catches a page that makes objects of all tokens of a transcript, and a cache that keeps them.
    size = write_long(runs, 700_000)
    tracemalloc.start()
    try:
        look_at_long(client, 700_000)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * size
    assert kept < size


def write_long(runs: Path, num_tokens: int) -> int:
    """A step with two rollouts of so many tokens. Bytes of their file."""
    path = rollouts_file(make_rl_run(runs / "a", num_steps=1), 0, is_test=False)
    path.write_text(f'{{"number":0,"group":{_long_group(num_tokens)}}}\n')
    return path.stat().st_size


def look_at_long(client: TestClient, num_tokens: int) -> None:
    for query in ("", "?text=nine", "?group=0", "?group=0&member=1", f"?group=0&member=1&from={num_tokens - 1000}"):
        for start in ("", "/api"):
            answer = client.get(f"{start}/runs/a/-/rollouts/1{query}")
            assert answer.status_code == 200, answer.text
            assert len(answer.content) < _MAX_BYTES, query


def _long_group(num_tokens: int) -> str:
    """Two rollouts that are alike, each of so many tokens."""
    token, logprob = ids(" nine")[0], -0.5
    few = 50
    turn = Transition(
        observation=tinker.ModelInput.from_ints(ids("Human: count\nAI:")),
        action=TokensWithLogprobs(tokens=[token] * few, maybe_logprobs=[logprob] * few),
        reward=1.0,
        episode_done=True,
        metrics={},
        logs={},
    )
    one = Trajectory(transitions=[turn], final_observation=tinker.ModelInput.empty())
    text = group_to_json(
        TrajectoryGroup(
            trajectories_G=[one, one], group_rewards_G=[0.0, 1.0], group_metrics_G=[{}, {}], tags=[], version=0
        )
    )
    for value in (str(token), str(logprob)):
        text = text.replace(",".join([value] * few), f"{value}," * (num_tokens - 1) + value)
    return text


def make_hostile(runs: Path) -> None:
    """Runs of every kind whose texts are hostile, long or both."""
    name = HOSTILE.replace("/", "∕").replace("\x07", "")
    rows = [{"step": step, f"test/{HOSTILE}": 0.5, HOSTILE: 1.0} for step in range(3)]
    trained = make_trained(runs / name, {0: [False, True], 40: [True, True]})
    line = HOSTILE + "z" * _LINE_BYTES
    (trained / "logs.log").write_text(f"2026-01-01 {HOSTILE}\n" * 100 + f"{line}\n")
    with (trained / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 40, "train/nll": 1.0}) + "\n" + json.dumps({"step": 41, line: 1.0}) + "\n")
    rollouts = make_run(runs / "rollouts")
    (rollouts / "rollouts").mkdir()
    write_hostile(rollouts / "rollouts" / "000000.jsonl", _LINE_BYTES)
    (rollouts / "rollouts" / "steps.jsonl").write_text('{"step": 0, "used": [[0, 0]], "left": [], "next_step": 1}\n')
    asked = [question_row(item, LONG, group=HOSTILE, name=HOSTILE) for item in range(2)]
    for number, scores in enumerate(([0.0, 1.0], [1.0, 0.0])):
        make_evaluation(runs / "ab"[number], scores, questions=asked, texts={0: LONG, 1: HOSTILE}, model_name=HOSTILE)
    parts: list[dict[str, Any]] = [{"data": HOSTILE}, {"data": "plain"}, {HOSTILE: 1}]
    names = make_sweep(runs / "sweep", parts, [0.5, 0.6, None])
    fail_run(runs / "sweep", names[2], LONG)
    (runs / "sweep" / names[0] / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
