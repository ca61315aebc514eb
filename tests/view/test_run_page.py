"""The page of a run as it is first painted, and its JSON: all of it from the files, none of it obeyed."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.diagnosis.series import GRPO, rollouts
from tests.pages.reader import Page
from tests.runs.kit import make_run

from cookhouse.report import run_page
from cookhouse.runs import read_record

HOSTILE = '</pre></table><script>alert(1)</script><img src=x onerror="alert(2)"> {{ 7 * 7 }} \x1b[2J\u202e'
SHOWN = HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")


def row(step: int, **metrics: Any) -> dict[str, Any]:
    return {"step": step, **metrics}


def rows(count: int) -> list[dict[str, Any]]:
    return [row(step, **{"train/loss": 3.0 - step / 10, "optim/x": float(step)}) for step in range(count)]


def record(run: Path, **changes: Any) -> None:
    """Write into the config.json of a run."""
    path = run / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_the_page_says_what_the_run_is_and_draws_its_curves(client: TestClient, runs: Path) -> None:
    evaluated = {"test/exact_match": 0.25, "test/exact_match_stderr": 0.05}
    last = row(5, **{"test/exact_match": 0.75, "test/exact_match_stderr": 0.04})
    run = make_run(runs / "group" / "a", rows=[row(0, **evaluated), *rows(5), last], batch_size=3, lora_rank=8)
    record(run, origins={"batch_size": "set", "lora_rank": "default", "model_name": "embedded default"})
    (run / "logs.log").write_text("one\ntwo\n")
    text = client.get("/runs/group/a/-/").text
    page = Page(text)
    told = " ".join(page.text.split())
    assert "exact match 25% → 75.0% ± 4.0%" in told
    assert "75.0% ± 4.0% (after step 5)" in told
    [loss] = page.charts
    assert loss["lines"][0]["points"][2] == [3, 2.8]
    assert loss["lines"][0]["address"] == "/runs/group/a/-/steps/"
    assert told.index("batch_size 3 set") < told.index("2 defaults") < told.index("lora_rank 8 default")
    assert "one two" in told
    assert page.values("style") == []


def test_what_the_metrics_show_to_be_wrong_is_on_the_page_and_in_its_json(client: TestClient, runs: Path) -> None:
    # Catches a run that trains for nothing and looks like any other.
    make_run(runs / "a", rows=rollouts(6, mixed=0), recipe="rl_basic", **GRPO)
    make_run(runs / "b", rows=rollouts(6, mixed=0.5, reward=lambda step: step / 6), recipe="rl_basic", **GRPO)
    [finding] = client.get("/api/runs/a/-/").json()["findings"]
    assert (finding["name"], finding["severity"], finding["step"]) == ("no_spread", "critical", 6)
    assert finding["evidence"]["env/all/by_group/frac_mixed"] == 0.0
    for address in ("/runs/a/-/", "/runs/a/-/now"):
        told = Page(client.get(address).text).text
        assert finding["title"] in told
        assert f"Try: {finding['advice']}" in told
    assert client.get("/api/runs/b/-/").json()["findings"] == []
    for name in "ab":
        record = read_record(runs / name)
        assert [each.as_json() for each in record.findings] == client.get(f"/api/runs/{name}/-/").json()["findings"]
        assert all(each.title in Page(run_page(record)).text for each in record.findings)


def test_nothing_in_a_run_is_obeyed(client: TestClient, runs: Path) -> None:
    # Catches one value that a template marks as safe, and control characters that reach a page or JSON.
    settings: dict[str, Any] = {f"s {HOSTILE}": HOSTILE}
    run = make_run(runs / "a", rows=[row(step, **{f"m {HOSTILE}": 1.0}) for step in range(4)], recipe="r", **settings)
    harmless = make_run(runs / "b", rows=[row(step, m=1.0) for step in range(4)], s="hello")
    for each, said in ((run, HOSTILE), (harmless, "hello")):
        record(each, recipe=f"r {said}", weights=[f"w {said}"], origins={})
        launches = json.loads((each / "run.json").read_text())
        launches["launches"][0] |= {"error": f"e {said}", "warnings": [f"x {said}"], "notes": [f"n {said}"]}
        (each / "run.json").write_text(json.dumps(launches))
        point = {
            "epoch": 0,
            "batch": 1,
            "step": 1,
            "final": True,
            "state_path": f"p {said}",
            "sampler_path": f"q {said}",
        }
        (each / "checkpoints.jsonl").write_text(json.dumps({"name": f"c {said}", **point}) + "\n")
        (each / "logs.log").write_text(f"l {said}\n")
    page, plain = (Page(client.get(f"/runs/{name}/-/").text) for name in "ab")
    assert page.tags == plain.tags
    assert [name for name, _ in page.attributes] == [name for name, _ in plain.attributes]
    for letter in "mswexncpqlr":
        assert f"{letter} {SHOWN}" in page.text, letter
    assert "49" not in page.text
    for part in ("charts", "log", "checkpoints", "settings", "metrics"):
        assert client.get(f"/api/runs/a/-/{part}").status_code == 200
    log = client.get("/api/runs/a/-/log").json()["log"]
    assert log["lines"] == [f"l {SHOWN}"]


def test_charts_are_the_same_as_in_the_report_and_come_by_name(client: TestClient, runs: Path) -> None:
    make_run(runs / "a", rows=rows(4))
    whole = client.get("/api/runs/a/-/charts", params={"name": ["train/loss", "gone"]}).json()
    assert [(group["key"], group["names"]) for group in whole["groups"]] == [
        ("deciding", ["train/loss"]),
        ("optim", ["optim/x"]),
    ]
    (chart,) = whole["charts"].values()
    assert chart["caption"] == "last 2.7 (step 4) · min 2.7 (step 4) · max 3 (step 1)"
    (line,) = chart["data"]["lines"]
    assert line["address"] == "/runs/a/-/steps/"
    assert line["points"] == [[1, 3.0], [2, 2.9], [3, 2.8], [4, 2.7]]


def test_rows_come_by_offset_and_not_finite_numbers_by_name(client: TestClient, runs: Path) -> None:
    # Catches JSON that a browser cannot read, and rows that a program gets twice.
    run = make_run(runs / "a", rows=[row(0, loss=float("nan"), huge=10**400, deep=[float("nan")])])
    first = client.get("/api/runs/a/-/metrics").json()
    assert first["rows"] == [{"step": 0, "loss": "nan", "huge": 10**400, "deep": "[nan]"}]
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1, "loss": 2.0}\n{"step": 2')
    second = client.get(f"/api/runs/a/-/metrics?from={first['to']}").json()
    assert (second["rows"], second["to"]) == ([{"step": 1, "loss": 2.0}], second["size"] - len('{"step": 2'))


@pytest.mark.parametrize("query", ["from=x", "from=-1", "from=1e3", "before=²", "from=" + "9" * 40])
def test_an_offset_that_is_none_is_refused_in_words(client: TestClient, runs: Path, query: str) -> None:
    make_run(runs / "a")
    answer = client.get(f"/api/runs/a/-/log?{query}")
    assert answer.status_code == 400
    assert "is no whole number from 0 on" in answer.json()["detail"]


def test_a_log_is_read_by_ranges_that_leave_no_line_out(client: TestClient, runs: Path) -> None:
    # Catches a log of 100 MB in one page, a lost or doubled line between two parts, and a long line as a whole.
    run = make_run(runs / "a")
    lines = [f"line {number}" for number in range(20_000)]
    (run / "logs.log").write_text("".join(f"{line}\n" for line in lines))
    found: list[str] = []
    before = ""
    while True:
        log = client.get(f"/api/runs/a/-/log?{before}").json()["log"]
        found = [*log["lines"], *found]
        assert sum(map(len, log["lines"])) < 1 << 17
        if not log["from"]:
            break
        before = f"before={log['from']}"
    assert found == lines
    again, start = [], 0
    while start < (run / "logs.log").stat().st_size:
        log = client.get(f"/api/runs/a/-/log?from={start}").json()["log"]
        again += log["lines"]
        start = log["to"]
    assert again == lines
    (run / "logs.log").write_text("y" * 10_000_000 + "\nend\n")
    answer = client.get("/api/runs/a/-/log")
    assert len(answer.content) < 1 << 17
    assert client.get("/runs/a/-/").text.count("y" * 3000) == 0


def test_lineage_leads_to_the_runs_at_both_ends(client: TestClient, runs: Path) -> None:
    # Catches a parent that is a path nobody can click, and a model that no checkpoint is known to be.
    first = make_run(runs / "first", saved=["tinker://x/weights/1"])
    make_run(runs / "second", number=1, weights=["tinker://x/weights/1"], load_checkpoint_path="tinker://x/weights/1")
    make_run(runs / "third", number=2, weights=[str(first)], load_checkpoint_path=str(first))
    launches = json.loads((first / "run.json").read_text())
    launches["launches"][0]["registered_model"] = "sums@1"
    (first / "run.json").write_text(json.dumps(launches))
    point = json.loads((first / "checkpoints.jsonl").read_text())
    last = {**point, "name": "final", "final": True, "sampler_path": "tinker://x/sampler_weights/final"}
    (first / "checkpoints.jsonl").write_text(json.dumps(point) + "\n" + json.dumps(last) + "\n")
    saved = client.get("/api/runs/first/-/checkpoints").json()
    assert saved["started_runs"] == ["second", "third"]
    assert [(each["name"], each["registered_as"]) for each in saved["checkpoints"]] == [
        ("final", "sums@1"),
        ("n", None),
    ]
    assert saved["checkpoints"][0]["export"].startswith("cookhouse checkpoints export tinker://x/sampler_weights/final")
    commands = dict(saved["commands"])
    assert commands["to train on from it"] == f"cookhouse run supervised load_checkpoint_path={first.resolve()}"
    for name in ("second", "third"):
        (origin,) = client.get(f"/api/runs/{name}/-/checkpoints").json()["started_from"]
        assert (origin["setting"], origin["run"]) == ("load_checkpoint_path", "first")


def test_a_run_that_failed_says_how_to_go_on_and_one_that_did_not_does_not(client: TestClient, runs: Path) -> None:
    make_run(runs / "a", status="failed")
    make_run(runs / "b", status="finished")
    for name, purposes in (("a", ["to continue", "to write its report"]), ("b", ["to write its report"])):
        saved = client.get(f"/api/runs/{name}/-/checkpoints").json()
        assert [purpose for purpose, _ in saved["commands"]] == purposes


def test_what_is_broken_is_named_and_the_rest_is_shown(client: TestClient, runs: Path) -> None:
    run = make_run(runs / "a", rows=rows(3))
    with (run / "metrics.jsonl").open("a") as file:
        file.write("nonsense\n")
    (run / "checkpoints.jsonl").write_text("[]\n")
    text = Page(client.get("/runs/a/-/").text).text
    assert "1 lines of metrics.jsonl are no metrics of a step" in text
    assert "checkpoints.jsonl, line 1, is not a checkpoint" in text
    assert "train/loss" in text


def test_a_form_leads_to_a_step(client: TestClient, runs: Path) -> None:
    make_run(runs / "a b", rows=rows(3))
    answer = client.get("/runs/a b/-/go?step=2", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs/a%20b/-/steps/2")


def test_a_run_that_is_gone_is_said_to_be(client: TestClient, runs: Path) -> None:
    make_run(runs / "a")
    for path in ("/runs/b/-/", "/api/runs/b/-/charts", "/runs/%2e%2e/-/", "/runs/a/%2e%2e/a/-/log"):
        assert client.get(path).status_code == 404
