"""Evaluations on a page: what each came to, and item by item where two of them differ."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page
from starlette.testclient import TestClient
from tests.browser import wider_than_window
from tests.runs.kit import make_run
from tests.view.evaluated import answer_row, grade_row, make_evaluation, make_trained, question_row, write_rows

BEFORE, AFTER = [0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0]


def compared(client: TestClient, **query: Any) -> Any:
    answer = client.get("/api/evaluations/compare", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_list_has_what_each_run_came_to(client: TestClient, runs: Path) -> None:
    # Catches a mean without its standard error and its n, and runs that measured nothing among those that did.
    make_evaluation(runs / "score", [1.0, 0.0, 1.0, 1.0])
    make_trained(runs / "trained", {0: [False, False], 40: [True, False]})
    make_run(runs / "silent", rows=[{"step": 1, "train/nll": 1.0}])
    found = client.get("/api/evaluations").json()["evaluations"]
    assert {each["run"] for each in found} == {"score", "trained"}
    score = next(each for each in found if each["run"] == "score")
    [figure] = score["figures"]
    assert (figure["text"], figure["stderr"], figure["n"]) == ("75%, 30 to 95%, of 4", 0.05, 4)
    assert (score["model"], score["stands_alone"], score["steps"]) == ("model-of-score", True, [])
    trained = next(each for each in found if each["run"] == "trained")
    assert (trained["steps"], trained["figures"][0]["value"], trained["figures"][0]["step"]) == ([0, 40], 0.5, 40)
    assert [each["run"] for each in client.get("/api/evaluations?text=SCORE").json()["evaluations"]] == ["score"]


def test_an_evaluation_that_is_on_tells_what_it_has(client: TestClient, runs: Path) -> None:
    # Catches a figure that waits for the end, one of a torn line, and a page that reads all of it again at each look.
    folder = make_evaluation(runs / "score", [1.0, 0.0], status="interrupted")
    (folder / "metrics.jsonl").unlink()
    write_rows(folder / "questions.jsonl", [question_row(item) for item in range(10)])
    with (folder / "grades.jsonl").open("a") as file:
        file.write('{"benchmark": "sums", "item": 2')
    [found] = client.get("/api/evaluations").json()["evaluations"]
    assert (found["progress"], found["figures"][0]["value"]) == ({"graded": 2, "asked": 10}, 0.5)
    with (folder / "grades.jsonl").open("a") as file:
        file.write(', "values": [{"correct": 1.0}]}\n')
    [found] = client.get("/api/evaluations").json()["evaluations"]
    assert (found["progress"]["graded"], found["figures"][0]["n"]) == (3, 3)
    assert found["figures"][0]["value"] == pytest.approx(2 / 3)


def test_two_models_differ_item_by_item(client: TestClient, runs: Path) -> None:
    # Catches an item on the wrong side, answers of one shown as the other's, an error as of independent means.
    make_evaluation(runs / "a", BEFORE, texts={0: "none of <b>it</b>"})
    make_evaluation(runs / "b", AFTER, texts={0: "zero"})
    found = compared(client, run=["a", "b"])
    [at_sums] = found["benchmarks"]
    assert at_sums["counts"] == {"gained": 1, "lost": 1, "right": 1, "wrong": 1}
    assert (at_sums["first"]["mean"], at_sums["second"]["mean"], at_sums["difference"]["mean"]) == (0.5, 0.5, 0.0)
    # Differences 1, -1, 0, 0: √(2/3 / 4)
    assert at_sums["difference"]["stderr"] == pytest.approx(math.sqrt(2 / 3 / 4))
    assert at_sums["difference"]["text"] == "±0 ± 40.8 points"
    gained, lost = found["items"]
    assert (gained["item"], gained["change"], lost["item"], lost["change"]) == (0, "gained", 1, "lost")
    assert [side["answers"][0]["text"] for side in gained["sides"]] == ["none of <b>it</b>", "zero"]
    assert [side["answers"][0]["outcome"] for side in gained["sides"]] == ["wrong", "right"]
    assert (gained["asked"][0]["text"], gained["expected"]["text"]) == ("What is 0 + 0?", "0")
    page = client.get("/evaluations/compare", params={"run": ["a", "b"]}).text
    assert "none of &lt;b&gt;it&lt;/b&gt;" in page


def test_items_are_filtered(client: TestClient, runs: Path) -> None:
    asked = [question_row(item, group="odd" if item % 2 else "even") for item in range(4)]
    make_evaluation(runs / "a", BEFORE, questions=asked)
    make_evaluation(runs / "b", AFTER, questions=asked, texts={3: "a Needle"})

    def items(**query: Any) -> list[int]:
        return [each["item"] for each in compared(client, run=["a", "b"], **query)["items"]]

    assert items(change="all") == [0, 1, 2, 3]
    assert items(change="wrong") == [3]
    assert items(group="even", change="all") == [0, 2]
    assert items(text="needle", change="all") == [3]
    assert items(text="what is 1", change="all") == [1]
    assert items(text="needle") == []
    assert items(offset=1, limit=1, change="all") == [1]
    assert compared(client, run=["a", "b"], group="even")["groups"] == ["even", "odd"]


def test_two_steps_of_one_run(client: TestClient, runs: Path) -> None:
    # Catches the last evaluation compared with itself, and questions that are matched by their place.
    folder = make_trained(runs / "t", {0: [False, True], 5: [False, False], 40: [True, True]})
    rows = json.loads((folder / "samples/000040.json").read_text())
    (folder / "samples/000040.json").write_text(json.dumps(rows[::-1]))
    found = compared(client, run="t")
    assert [side["label"] for side in found["sides"]] == ["t before training", "t after step 40"]
    [item] = found["items"]
    assert [side["answers"][0]["text"] for side in item["sides"]] == ["wrong after 0", "0"]
    assert [message["text"] for message in item["asked"]] == ["0 + 0?"]
    between = compared(client, run="t", step=[5, 40])
    assert (between["counts"]["gained"], between["sides"][0]["step"]) == (2, 5)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({}, "choose one run"),
        ({"run": ["a", "b", "t"]}, "choose one run"),
        ({"run": "one"}, "has no two evaluations"),
        ({"run": ["a", "silent"]}, "silent has no evaluation"),
        ({"run": "t", "step": 7}, "after: 0, 40"),
        ({"run": "t", "step": "x"}, "whole number"),
        ({"run": ["a", "b"], "change": "worse"}, "change is one of all, gained, lost"),
        ({"run": ["a", "b"], "benchmark": "gsm8k"}, "both have answered, which is sums"),
        ({"run": ["a", "../a"]}, "unknown run '../a'"),
    ],
)
def test_what_cannot_be_compared_is_said(client: TestClient, runs: Path, query: dict[str, Any], said: str) -> None:
    make_evaluation(runs / "a", BEFORE)
    make_evaluation(runs / "b", AFTER)
    make_trained(runs / "t", {0: [False], 40: [True]})
    make_trained(runs / "one", {0: [False]})
    make_run(runs / "silent")
    answer = client.get("/api/evaluations/compare", params=query)
    assert answer.status_code in (400, 404)
    assert said in answer.json()["detail"]


def test_items_that_were_asked_otherwise_are_not_compared(client: TestClient, runs: Path) -> None:
    # Catches two versions of a benchmark whose items have the same numbers.
    make_evaluation(runs / "a", BEFORE)
    make_evaluation(runs / "b", AFTER, questions=[question_row(0, "Another one?"), *map(question_row, (1, 2, 3))])
    found = compared(client, run=["a", "b"])
    assert (found["num_asked_otherwise"], found["benchmarks"][0]["difference"]["n"]) == (1, 3)
    assert found["counts"] == {"gained": 0, "lost": 1, "right": 1, "wrong": 1}
    make_trained(runs / "t", {0: [False], 40: [True]})
    nothing = compared(client, run=["a", "t"])
    assert (nothing["benchmarks"], nothing["items"]) == ([], [])
    assert "They have no item in common" in client.get("/evaluations/compare?run=a&run=t").text


def test_several_samples_of_an_item(client: TestClient, runs: Path) -> None:
    for name, correct in (("a", [1.0, 0.0]), ("b", [1.0, 1.0])):
        folder = make_evaluation(runs / name, [0.0])
        write_rows(folder / "answers.jsonl", [answer_row(0, ["yes", f"{name} says"])])
        write_rows(folder / "grades.jsonl", [grade_row(0, correct)])
    [item] = compared(client, run=["a", "b"])["items"]
    assert [side["score"] for side in item["sides"]] == [0.5, 1.0]
    assert [answer["outcome"] for answer in item["sides"][0]["answers"]] == ["right", "wrong"]
    whole = client.get("/api" + item["sides"][0]["address"] + "&sample=1").json()
    assert (whole["answer"]["text"], whole["outcome"], whole["num_samples"]) == ("a says", "wrong", 2)


def test_torn_and_foreign_lines_are_named(client: TestClient, runs: Path) -> None:
    # Catches a page that a bad line takes away, and one that hides it.
    make_evaluation(runs / "a", BEFORE)
    folder = make_evaluation(runs / "b", AFTER)
    with (folder / "grades.jsonl").open("a") as file:
        file.write('no json\n{"benchmark": "sums", "item": 9, "values": [{"correct": "NaN"}]}\n{"torn')
    with (folder / "answers.jsonl").open("a") as file:
        file.write('{"item": 3}\n')
    (folder / "questions.jsonl").unlink()
    found = compared(client, run=["a", "b"])
    assert [problem.split(", ")[:2] for problem in found["problems"]] == [
        ["b: answers.jsonl", "line 5"],
        ["b: grades.jsonl", "line 5"],
        ["b: grades.jsonl", "line 6"],
    ]
    assert found["benchmarks"][0]["difference"]["n"] == 4
    assert found["items"][0]["asked"][0]["text"] == "What is 0 + 0?", "the other one has it"
    (runs / "a" / "questions.jsonl").unlink()
    assert "was not kept" in compared(client, run=["a", "b"])["items"][0]["problem"]
    samples = make_trained(runs / "t", {0: [False], 40: [True]}) / "samples/000040.json"
    samples.write_text("[")
    assert "does not hold answers" in compared(client, run="t")["problems"][0]


def test_an_answer_of_ten_megabytes_is_shown_in_parts(client: TestClient, runs: Path) -> None:
    # Catches a page as large as its text, a text whose end nobody can reach, and one that anything obeys.
    hostile = "<script>alert(1)</script>\x1b[31m" + "x" * 10_000_000 + "the end"
    make_evaluation(runs / "a", BEFORE)
    make_evaluation(runs / "b", AFTER, texts={0: hostile})
    page = client.get("/evaluations/compare?run=a&run=b")
    assert len(page.content) < 100_000
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m" in page.text
    assert "\x1b" not in page.text
    assert f"({len(hostile) - 3000:,} more characters)" in page.text
    side = compared(client, run=["a", "b"])["items"][0]["sides"][1]
    first = client.get("/api" + side["address"]).json()["answer"]
    assert (first["to"], first["characters"], first["before"]) == (50_000, len(hostile), None)
    last = client.get(f"/api{side['address']}&sample=0&from={len(hostile) - 7}").json()["answer"]
    assert (last["text"], last["behind"]) == ("the end", None)
    assert client.get(first["behind"]).status_code == 200


def test_notes_are_text(client: TestClient, runs: Path) -> None:
    # Catches notes of a run that a page takes for its own markup, and a file beside them that is served.
    folder = make_run(runs / "t") / "evaluations"
    folder.mkdir()
    entries = [{"scope": "<b>", "is_open": True, "entries": [{"note": "<script>1</script>"}]}]
    (folder / "000040-0.json").write_text(json.dumps({"evaluator": "mine", "step": 40, "entries": entries}))
    found = client.get("/api/evaluations/notes?run=t").json()
    assert (found["title"], found["note"]) == ("mine after step 40", "000040-0")
    page = client.get("/evaluations/notes?run=t").text
    assert "&lt;script&gt;1&lt;/script&gt;" in page
    assert client.get("/api/evaluations/notes?run=t&note=../config").status_code == 404
    (folder / "000040-0.json").write_text("{}")
    assert "does not hold notes" in client.get("/api/evaluations/notes?run=t").json()["detail"]


def test_in_a_browser(show: Callable[..., Page], runs: Path) -> None:
    # Catches a comparison that cannot be chosen by keyboard, a page that is wider than a telephone, and one that stands
    # still while an evaluation goes on.
    make_evaluation(runs / "a", BEFORE)
    folder = make_evaluation(runs / "b", AFTER)
    page = show("/evaluations", 420, "dark")
    assert wider_than_window(page) == 0
    for name in ("a", "b"):
        page.get_by_label(f"compare {name}", exact=True).focus()
        page.keyboard.press("Space")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 0, "test/sums/correct": 0.875}\n')
    page.get_by_text("87.5%").wait_for()
    assert page.get_by_label("compare b", exact=True).is_checked(), "what was chosen stays"
    page.get_by_role("button", name="compare two").click()
    page.get_by_role("link", name="the other way round").click()
    page.get_by_role("link", name="1 wrong to right").click()
    page.wait_for_url("**change=gained")
    assert page.locator("article").count() == 1
    assert wider_than_window(page) == 0
    page.get_by_role("link", name="all of it").first.click()
    assert page.get_by_text("What is 0 + 0?").is_visible()
