"""The page of a step says what happened there, what was trained on, and what was sampled."""

import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.pages.reader import Page
from tests.runs.kit import make_run
from tests.view.refusals import assert_refused
from tests.view.rl_run import END, group, keep_rollouts, make_rl_run

from cookhouse.chat.token_texts import TokenText
from cookhouse.report.token_spans import Wording
from cookhouse.view.tokens.words import Words

HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[2J\u202e"


def test_what_moved_stands_first(runs: Path, client: TestClient) -> None:
    # Catches a page that shows a hundred metrics and lets people find the one that fell.
    make_rl_run(runs / "a", num_steps=8)
    found = client.get("/api/runs/a/-/steps/7").json()
    assert found["changes"][0] == {
        "name": "env/all/reward/total",
        "told": "0.9 → 0.2 (−0.7, which did not move before)",
        "is_better": False,
    }
    assert (found["previous"], found["following"]) == ("6", "8")
    page = Page(client.get("/runs/a/-/steps/7").text)
    assert "−0.7, which did not move before), worse" in page.text
    assert "/runs/a/-/steps/6" in page.values("href")


def test_what_was_trained_on(runs: Path, client: TestClient) -> None:
    # Catches values that stand one token beside their own.
    make_rl_run(runs / "a")
    found = client.get("/api/runs/a/-/steps/2").json()
    [example] = found["examples"]
    spans = example["spans"]
    assert "".join(span["text"] for span in spans) == f"Human: What is 2 + 2?\nAI: 4{END}"
    assert spans[0]["values"] == {"logprob": [None], "weight": [None]}
    assert spans[-1]["values"] == {"logprob": [-1.0], "weight": [1.0]}
    assert spans[-1]["classes"] == "token special l-n10 w-p10"
    assert spans[1]["classes"].split()[:2] == ["token", "untrained"]
    assert example["num_trained"] == example["num_tokens"] // 2
    assert "What was trained on" in client.get("/runs/a/-/steps/2").text


def test_gaps_are_of_what_was_trained_on(runs: Path, client: TestClient) -> None:
    # Catches a prompt that looks as if its sampler had erred by the whole of its logprob, and a teacher nobody sees.
    make_rl_run(runs / "a")
    kept = runs / "a" / "examples" / "000001.jsonl"
    row = json.loads(kept.read_text())
    num = len(row["targets"]) - 1
    values = {
        "weights": [0.0] * num + [1.0],
        "logprobs": [-9.0] * num + [-0.25],
        "sampler_logprobs": [0.0] * num + [-0.5],
        "teacher_logprobs": [0.0] * num + [-3.25],
    }
    kept.write_text(json.dumps({**row, **values}) + "\n")
    found = client.get("/api/runs/a/-/steps/2?by=teacher").json()
    [example] = found["examples"]
    assert {gap for span in example["spans"][:-1] for gap in span["values"]["gap"]} == {None}
    last = example["spans"][-1]["values"]
    assert (last["gap"], last["teacher"]) == ([-0.25], [-3.0])
    assert (found["by"], [scale["key"] for scale in found["scales"]]) == ("teacher", [1, 2, 3, 4, 5])
    others = client.get("/api/runs/a/-/steps/1").json()
    assert "teacher" not in [scale["quantity"] for scale in others["scales"]]


def test_what_was_sampled(runs: Path, client: TestClient) -> None:
    make_rl_run(runs / "a")
    found = client.get("/api/runs/a/-/steps/1").json()["sampled"]
    assert (found["num_rollouts"], found["num_groups"]) == (4, 2)
    assert [(each["asked"], each["best"], each["worst"]) for each in found["groups"]] == [
        ("What is 2 + 2?", f"4{END}", f"4{END}"),
        ("What is 3 + 3?", f"6{END}", "seven"),
    ]
    assert client.get(f"/api{found['groups'][1]['address']}").json()["group"]["number"] == 1
    [low, _] = found["bars"]
    assert client.get(f"/api{low['address']}").json()["num_found"] == 1


def test_groups_of_other_steps_are_named(runs: Path, client: TestClient) -> None:
    # Catches a run with max_lag whose step shows what it was not trained on.
    run = make_rl_run(runs / "a", max_lag=1)
    (run / "rollouts" / "steps.jsonl").write_text(
        json.dumps({"step": 1, "used": [[0, 1], [1, 0]], "left": [[1, 1]], "next_step": 2}) + "\n"
    )
    (run / "rollouts" / "advantages-000000.jsonl").unlink()
    (run / "rollouts" / "advantages-000001.jsonl").write_text(
        json.dumps({"step": 0, "number": 1, "advantages": [[0.5], [-0.5]]}) + "\n"
    )
    [other] = client.get("/api/runs/a/-/steps/2").json()["others"]
    assert (other["step"], other["num_groups"]) == (1, 1)
    late = client.get("/api/runs/a/-/rollouts/1?group=1").json()["group"]
    assert late["trained_at"] == 2
    assert [each["advantage"] for each in late["members"]] == ["0.5", "-0.5"]


def test_a_step_without_examples_says_so(runs: Path, client: TestClient) -> None:
    make_run(runs / "old", rows=[{"step": 0, "train/loss": 1.0}, {"step": 1, "test/nll": 1.0}])
    page = client.get("/runs/old/-/steps/1").text
    assert "no examples of this step are kept" in page
    assert "It is the first step" in page
    assert client.get("/api/runs/old/-/steps/1").json()["following"] is None, "an evaluation is no step"


def test_a_step_under_way(runs: Path, client: TestClient) -> None:
    run = make_run(runs / "a", status="running", model_name="cookhouse/tiny")
    (run / "rollouts").mkdir()
    keep_rollouts(run, 0, [group("q", {" a": 1.0})])
    assert "it is under way" in client.get("/runs/a/-/steps/1").text


def test_a_broken_example_is_said(runs: Path, client: TestClient) -> None:
    run = make_rl_run(runs / "a")
    (run / "examples" / "000000.jsonl").write_text('{"number": 0}\n')
    page = client.get("/runs/a/-/steps/1")
    assert page.status_code == 200
    assert "is no example of a step" in page.text
    assert "What moved most" in page.text


class _Hostile:
    """Every token of every model is markup."""

    def of(self, _record: object) -> Words:
        return Words(wording=Wording(texts=lambda tokens, _: (TokenText(at, 1, HOSTILE) for at in range(len(tokens)))))


def test_hostile_tokens_stay_text(runs: Path, client: TestClient) -> None:
    # Catches markup that is one token, where others split it into harmless pieces.
    make_rl_run(runs / "a")
    num_scripts = Page(client.get("/runs/a/-/steps/1").text).tags.count("script")
    client.app.state.wordings = _Hostile()  # type: ignore[attr-defined]
    html = client.get("/runs/a/-/steps/1").text
    page = Page(html)
    assert page.text.count("alert(1)") > 10
    assert page.tags.count("script") == num_scripts
    assert "img" not in page.tags
    assert "\x1b" not in html
    assert "\u202e" not in html


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("steps/9", 404, "it has come to step 3"),
        ("steps/0", 400, "is no step"),
        ("steps/test-1", 400, "is no step of training"),
        ("steps/1?by=color", 400, "it is one of"),
    ],
)
def test_what_cannot_be_shown_is_said(runs: Path, client: TestClient, path: str, status: int, said: str) -> None:
    make_rl_run(runs / "a")
    assert_refused(client, f"runs/a/-/{path}", status, said)
