"""Sweeps on a page: how their runs stand, which is the best, in any order, and live."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page
from starlette.testclient import TestClient
from tests.browser import wider_than_window
from tests.runs.kit import make_run
from tests.view.sweeps import GRID, REACHED, fail_run, make_sweep

from cookhouse.report import RunRecord
from cookhouse.runs import read_record
from cookhouse.sweeps.halving import Halving, Promotion, RungResult, write_halving


def values(answer: Any) -> list[float | None]:
    return [run["value"] for run in answer["runs"]]


def test_a_sweep_tells_how_its_runs_stand_and_which_is_the_best(client: TestClient, runs: Path) -> None:
    # Catches a run that failed among the planned ones, a best without its error and its ties, a run without a way.
    names = make_sweep(runs / "rates", GRID, REACHED, status="interrupted")
    fail_run(runs / "rates", names[6], "InputError: <b>out of memory</b>")
    found = client.get("/api/experiments/rates").json()
    assert found["by_state"] == {"finished": 6, "waiting": 1, "failed": 1}
    assert (found["num_runs"], found["num_left"], found["swept"]) == (8, 1, ["learning_rate", "lora_rank"])
    assert found["best"]["name"] == names[5]
    assert found["best_text"].startswith(f"{names[5]}, exact match 83.0% ± 2.7%")
    assert "less than the standard error of that" in found["remark"]
    best = found["runs"][5]
    assert best["settings"] == {"learning_rate": 0.001, "lora_rank": 32}
    assert (best["value"], best["text"], best["run"]) == (0.83, "83.0% ± 2.7%", f"rates/{names[5]}")
    assert best["stderr"] == pytest.approx(0.02656, rel=1e-3)
    assert (found["runs"][7]["run"], found["runs"][7]["value"], found["runs"][7]["state"]) == (None, None, "waiting")
    assert found["runs"][6]["error"] == "InputError: <b>out of memory</b>"
    assert found["resume"] == f"cookhouse runs resume {runs / 'rates'}"
    page = client.get("/experiments/rates").text
    assert "&lt;b&gt;out of memory" in page
    assert f'href="/runs/rates/{names[5].replace("=", "%3D").replace(",", "%2C")}/-/"' in page


@pytest.mark.parametrize(("is_over", "state"), [(False, "paused"), (True, "stopped")])
def test_runs_that_stopped_at_a_rung_are_told_from_those_that_were_cut_off(
    client: TestClient, runs: Path, is_over: bool, state: str
) -> None:
    # Catches a sweep that is over and looks like sixty interrupted runs, and values of different steps side by side.
    parts: list[dict[str, Any]] = [{"lora_rank": rank} for rank in (4, 8, 16)]
    names = make_sweep(runs / "halved", parts, [0.4, 0.6, 0.5], status="finished", min_steps=3)
    for name in names[::2]:
        launches = json.loads((runs / "halved" / name / "run.json").read_text())
        launches["launches"][-1]["status"] = "interrupted"
        (runs / "halved" / name / "run.json").write_text(json.dumps(launches))
    halving = Halving(rungs=[3, 9], reduction_factor=3, metric="test/exact_match", direction="more", is_over=is_over)
    values = zip(names[:2], (0.4, 0.6), strict=True)
    halving.measured = [
        RungResult(run=name, rung=0, step=3, value=value, stderr=None, is_finished=False) for name, value in values
    ]
    halving.promotions = [Promotion(run=names[1], rung=1, rank=1, num_measured=2)]
    halving.measured.append(RungResult(run=names[1], rung=1, step=9, value=0.6, stderr=None, is_finished=True))
    halving.outcomes = {names[0]: "rank 2 of 2 <b>"} if is_over else {}
    write_halving(runs / "halved", halving)
    found = client.get("/api/experiments/halved?sort=steps").json()
    assert found["by_state"] == {"finished": 1, state: 1, "interrupted": 1}
    assert [(run["name"], run["steps"]) for run in found["runs"]] == [(names[0], 3), (names[1], 9), (names[2], None)]
    assert (found["best"]["name"], found["rungs"]) == (names[1], [3, 9])
    page = client.get("/experiments/halved").text
    assert ('title="rank 2 of 2 &lt;b&gt;"' in page) is is_over
    [line] = client.get("/api/experiments/").json()["experiments"]
    assert line["by_state"] == {"finished": 1, state: 1, "interrupted": 1}
    (runs / "halved" / "halving.json").write_text("[")
    found = client.get("/api/experiments/halved").json()
    assert "halving.json does not hold the decisions" in found["problems"][0]


@pytest.mark.parametrize(
    ("sort", "order", "expected"),
    [
        ("value", "ascending", [0.2, 0.5, 0.9, None, None]),
        ("value", "descending", [0.9, 0.5, 0.2, None, None]),
        ("settings.rate", "ascending", [0.9, 0.2, 0.5, None, None]),
        ("run", "descending", [None, None, 0.5, 0.2, 0.9]),
    ],
)
def test_any_column_sorts(client: TestClient, runs: Path, sort: str, order: str, expected: list[float | None]) -> None:
    # Catches 10 before 9, a text that breaks the order of numbers, and what is missing at the top.
    parts: list[dict[str, Any]] = [{"rate": 2}, {"rate": 9}, {"rate": 10}, {"rate": "auto"}, {}]
    make_sweep(runs / "s", parts, [0.9, 0.2, 0.5, None, None])
    assert values(client.get("/api/experiments/s", params={"sort": sort, "order": order}).json()) == expected


def test_what_no_column_is_is_refused(client: TestClient, runs: Path) -> None:
    make_sweep(runs / "s", [{"rate": 1}, {"rate": 2}], [0.5, None])
    answer = client.get("/api/experiments/s", params={"sort": "vlaue"})
    assert (answer.status_code, "value" in answer.json()["detail"]) == (404, True)
    for wrong in ({"order": "up"}, {"offset": "-1"}, {"limit": "x"}, {"limit": "0"}):
        assert client.get("/api/experiments/s", params=wrong).status_code == 400
    make_run(runs / "alone")
    assert "is no sweep" in client.get("/api/experiments/alone").json()["detail"]
    assert client.get("/api/experiments/..%2f..%2fetc").status_code == 404


def test_a_long_sweep_is_told_in_parts(client: TestClient, runs: Path) -> None:
    # Catches a page of thousands of rows.
    make_sweep(runs / "s", [{"rate": number} for number in range(450)], [None] * 450)
    first = client.get("/api/experiments/s").json()
    assert (len(first["runs"]), first["paging"]["behind"]) == (200, "?offset=200&limit=200")
    last = client.get("/api/experiments/s?sort=settings.rate&order=descending&offset=400&limit=200").json()
    assert [run["settings"]["rate"] for run in last["runs"]] == list(range(49, -1, -1))
    assert last["paging"]["before"] == "?sort=settings.rate&order=descending&offset=200&limit=200"


def test_broken_runs_leave_the_others_alone(client: TestClient, runs: Path) -> None:
    # Catches a page that a torn file takes away, and one that says nothing of it.
    names = make_sweep(runs / "s", GRID[:4], [0.4, 0.5, 0.6, 0.7], metric="test/exact_match")
    (runs / "s" / names[0] / "run.json").write_text('{"launches": [')
    (runs / "s" / names[1] / "config.json").unlink()
    (runs / "s" / names[1] / "metrics.jsonl").unlink()
    with (runs / "s" / names[2] / "metrics.jsonl").open("a") as file:
        file.write("no row\n")
    (runs / "s" / "sweep.json").write_text("{")
    found = client.get("/api/experiments/s").json()
    assert [run["state"] for run in found["runs"]] == ["unreadable", "unreadable", "finished", "finished"]
    assert [problem.split(":")[0] for problem in found["problems"]] == [names[0], names[1], "sweep.json", names[2]]
    assert found["best"]["name"] == names[3]


def test_the_list_has_every_sweep(client: TestClient, runs: Path) -> None:
    make_run(runs / "alone", number=50)
    make_sweep(runs / "group" / "rates", GRID, REACHED)
    [found] = client.get("/api/experiments/").json()["experiments"]
    assert (found["name"], found["recipe"], found["num_runs"]) == ("group/rates", "sweep of supervised", 8)
    assert (found["by_state"], found["num_planned"]) == ({"finished": 6}, 2)
    assert found["headline"] == "exact match 0% → 83.0% ± 2.7%"
    assert '<a href="/experiments/group/rates">' in client.get("/experiments/").text


def test_a_page_that_is_open_follows_its_sweep(show: Callable[..., Page], runs: Path) -> None:
    # Catches a page that stands still, or that jumps: what was focused stays so.
    names = make_sweep(runs / "rates", GRID[:3], [0.4, 0.5, None])
    page = show("/experiments/rates", 420, "dark")
    assert wider_than_window(page) == 0
    assert page.get_by_text("1 planned").is_visible()
    page.get_by_role("link", name="lora_rank", exact=True).focus()
    make_run(runs / "rates" / names[2], rows=[{"step": 0, "test/exact_match": 0.9}])
    page.get_by_text("3 finished").wait_for()
    assert page.locator("tr.best th").get_attribute("title") == names[2]
    assert page.evaluate("document.activeElement.textContent") == "lora_rank"
    page.keyboard.press("Enter")
    page.locator('th[aria-sort="ascending"]').wait_for()
    page.locator("svg.live").first.focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/rates/*-learning_rate%3D0.0001*/-/")


def test_what_stays_is_not_read_again(client: TestClient, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches a page that parses the metrics of every run at each event.
    names = make_sweep(runs / "s", GRID, REACHED)
    read: list[str] = []

    def noted(path: Path) -> RunRecord:
        read.append(path.name)
        return read_record(path)

    monkeypatch.setattr("cookhouse.sweeps.reading.read_record", noted)
    first = client.get("/api/experiments/s").json()
    assert read == names[:6]
    assert client.get("/api/experiments/s").json() == first
    assert len(read) == 6
    with (runs / "s" / names[1] / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 10, "test/exact_match": 0.99}) + "\n")
    assert client.get("/api/experiments/s").json()["best"]["name"] == names[1]
    assert read[6:] == [names[1]]
