"""One run that is broken, or that a stranger made: the others are shown, and its own page says what is wrong."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.runs.kit import make_run
from tests.view.evaluated import make_evaluation, make_trained, question_row
from tests.view.rl_run import group, keep_rollouts, make_rl_run

from cookhouse.runs.lock import hold

DEEP = "[" * 100_000
POINT = {
    "name": "n",
    "epoch": 0,
    "batch": 1,
    "step": 1,
    "final": True,
    "state_path": None,
    "sampler_path": "tinker://s",
}
LISTS = ("/", "/api/", "/experiments/", "/evaluations")


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def wrote(name: str, text: str | bytes) -> Callable[[Path], object]:
    return lambda run: (run / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def point(**values: Any) -> Callable[[Path], object]:
    return wrote("checkpoints.jsonl", json.dumps({**POINT, "best": {"test/nll": 1.0}, **values}) + "\n")


BREAKS: dict[str, Callable[[Path], object]] = {
    "deep config": wrote("config.json", DEEP),
    "recipe that is no text": wrote("config.json", '{"recipe": [], "config": {}}'),
    "deep launches": wrote("run.json", DEEP),
    "deep metrics": wrote("metrics.jsonl", f"{DEEP}\n"),
    "deep result": wrote("result.json", DEEP),
    "number of hundreds of digits": wrote("metrics.jsonl", '{"step": 0, "test/nll": 1%s}\n' % ("0" * 400)),
    "step of hundreds of digits": wrote("metrics.jsonl", '{"step": 1%s, "test/nll": 1}\n' % ("0" * 400)),
    "checkpoints that are no text": wrote("checkpoints.jsonl", b"\xff\n"),
    "deep checkpoint": wrote("checkpoints.jsonl", f"{DEEP}\n"),
    "checkpoint's best": point(best=[1]),
    "checkpoint's step": point(step={"a": 1}),
    "checkpoint's path": point(sampler_path={}),
    "checkpoint's value": point(best={"test/nll": "x"}),
    "pipe as config": lambda run: pipe(run / "config.json"),
    "pipe as metrics": lambda run: pipe(run / "metrics.jsonl"),
    "device as result": lambda run: (run / "result.json").symlink_to("/dev/zero"),
    "pipe as log": lambda run: pipe(run / "logs.log"),
    "folder as trace": lambda run: (run / "trace.json").mkdir(),
    "bytes as name": lambda run: run.rename(os.fsdecode(os.fsencode(run) + b"\xff")),
}


@pytest.mark.parametrize("what", BREAKS)
def test_it_takes_no_page_of_the_others_away(client: TestClient, runs: Path, what: str) -> None:
    # Catches a list of hundreds of runs that one file takes down, and a server that waits at a pipe for ever.
    make_run(runs / "whole", rows=[{"step": 0, "train/loss": 1.0}])
    broken = make_run(runs / "broken", rows=[{"step": 0, "test/nll": 1.0}], keep_best="test/nll", number=1)
    BREAKS[what](broken)
    for address in LISTS:
        assert client.get(address).status_code == 200, address
    assert "whole" in [line["name"] for line in client.get("/api/").json()["runs"]]
    for address in ("/runs/broken/-/", "/api/runs/broken/-/charts", "/runs/broken/-/answers"):
        assert client.get(address).status_code in (200, 404), address  # 404: it is shown no more, or has no answers


def test_the_playground_begins_though_the_newest_run_is_broken(client: TestClient, runs: Path) -> None:
    # Catches a form that nobody gets since the run that it would begin with cannot be read.
    broken = make_run(runs / "broken")
    point()(broken)
    (broken / "config.json").write_text(DEEP)
    answer = client.get("/api/playground")
    assert answer.status_code == 200
    assert "is not the config of a run" in answer.json()["problem"]


@pytest.mark.parametrize("at", ["0001-01-01 00:00:00,000", "9999-12-31 23:59:59,999"])
def test_a_run_that_is_on_tells_what_no_clock_has(client: TestClient, runs: Path, at: str) -> None:
    # Catches a list that fails for as long as one run goes on: a step of hundreds of digits of seconds, an event at the
    # end of time.
    run = make_run(runs / "one", rows=[{"step": 0, "train/loss": 1.0, "time/step_seconds": 10**400}])
    launch = json.loads((run / "run.json").read_text())["launches"][0] | {"ended_at": None, "total_steps": 9}
    (run / "run.json").write_text(json.dumps({"launches": [launch]}))
    (run / "logs.log").write_text(f"{at} INFO cookhouse.telemetry.logs: run.waiting what=it seconds=1e999\n")
    with hold(run):
        for address in ("/", "/runs/one/-/"):
            assert client.get(address).status_code == 200, address


def test_half_characters_lead_nowhere_wrong(client: TestClient, runs: Path) -> None:
    # Catches a group, an item or an answer that is not shown since no address can hold what a model said in it.
    half = "half \ud83d"
    run = make_rl_run(runs / "rl", num_steps=1)
    keep_rollouts(run, 0, [group("x", {" 4": 1.0, " 5": 0.0}, {"question": "HALF"})])
    rollouts = run / "rollouts" / "000000.jsonl"
    rollouts.write_text(rollouts.read_text().replace("HALF", r"half \ud83d"))
    make_trained(runs / "trained", {0: [False], 4: [True]})
    for path in (runs / "trained" / "samples").iterdir():
        path.write_text(path.read_text().replace("0 + 0?", r"half \ud83d"))
    for name in ("a", "b"):
        asked = [question_row(0, half, benchmark=half)]
        make_evaluation(runs / name, [float(name == "a")], questions=asked)
        for file in ("answers.jsonl", "grades.jsonl"):
            path = runs / name / file
            path.write_text(path.read_text().replace('"sums"', json.dumps(half)))
    for address in (
        "/runs/rl/-/rollouts/1?group=0",
        "/runs/trained/-/answers",
        "/evaluations/compare?run=a&run=b",
        "/evaluations",
    ):
        page = client.get(address)
        assert page.status_code == 200, page.text
        assert r"half \ud83d" in page.text or address == "/evaluations", address
