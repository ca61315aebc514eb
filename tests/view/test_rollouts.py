"""The pages of what was sampled, asked for without a browser: what they say, and that nothing in them acts."""

import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.pages.reader import Page
from tests.runs.kit import make_run
from tests.view.refusals import assert_refused
from tests.view.rl_run import END, group, keep_rollouts, make_rl_run

HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[2J\u202e\ud800"


def test_the_list_says_what_the_files_say(runs: Path, client: TestClient) -> None:
    make_rl_run(runs / "a")
    found = client.get("/api/runs/a/-/rollouts/1").json()
    assert (found["num_rollouts"], found["num_groups"], found["previous"], found["following"]) == (4, 2, None, "2")
    assert [(bar["low"], bar["count"]) for bar in found["bars"]] == [(-0.1, 1), (1.0, 3)]
    assert [(line["group"], line["member"], line["answered"]) for line in found["rollouts"]] == [
        (0, 0, f"4{END}"),
        (0, 1, "4"),
        (1, 0, f"6{END}"),
        (1, 1, "seven"),
    ]
    page = Page(client.get("/runs/a/-/rollouts/1").text)
    assert "What is 3 + 3?" in page.text
    assert found["rollouts"][3]["address"] in page.values("href")


@pytest.mark.parametrize(
    ("query", "members"),
    [
        ("min_reward=0.5", [(0, 0), (0, 1), (1, 0)]),
        ("max_reward=0", [(1, 1)]),
        ("min_reward=1&max_reward=1&text=3+%2B+3", [(1, 0)]),
        ("text=SEVEN", [(1, 1)]),
        ("text=nowhere", []),
        ("sort=-reward&limit=1&offset=3", [(1, 1)]),
    ],
)
def test_what_is_looked_for_is_found(
    runs: Path, client: TestClient, query: str, members: list[tuple[int, int]]
) -> None:
    make_rl_run(runs / "a")
    found = client.get(f"/api/runs/a/-/rollouts/1?{query}").json()
    assert [(line["group"], line["member"]) for line in found["rollouts"]] == members


def test_each_bar_leads_to_its_own_rollouts(runs: Path, client: TestClient) -> None:
    # Catches a value at the edge of two bars that stands in both, or in neither.
    make_rl_run(runs / "a")
    keep_rollouts(runs / "a", 0, [group("q", {f" {n}": n * 0.1 for n in range(40)})])
    bars = client.get("/api/runs/a/-/rollouts/1").json()["bars"]
    counts = [client.get(f"/api{bar['address']}").json()["num_found"] for bar in bars if bar["count"]]
    assert counts == [bar["count"] for bar in bars if bar["count"]]
    assert sum(counts) == 40


def test_a_group_side_by_side(runs: Path, client: TestClient) -> None:
    # Catches a prompt shown sixteen times, values beside the wrong token, and colors without their numbers.
    make_rl_run(runs / "a")
    group = client.get("/api/runs/a/-/rollouts/1?group=0").json()["group"]
    shared = "".join(span["text"] for piece in group["shared"]["pieces"] for span in piece["spans"])
    assert shared == "Human: What is 2 + 2?\nAI: 4"
    assert group["alike"]["question"] == "What is 2 + 2?"
    first, second = group["members"]
    assert [span["text"] for span in first["turns"][0]["pieces"][0]["spans"]] == [END]
    [span] = second["turns"][0]["pieces"][0]["spans"]
    assert span["text"] == "\n"
    assert span["values"] == {"logprob": [-0.5], "advantage": [1.0], "gap": [0.25]}
    assert span["classes"] == "token l-n5 a-p10 g-p5"
    assert first["advantage"] == "1"
    assert [scale["missing"] != "" for scale in group["scales"]] == [False, False, True, False]
    assert group["trained_at"] == 1
    page = Page(client.get("/runs/a/-/rollouts/1?group=0").text)
    assert "The first" in page.text
    assert f"token {second['start']} · id" in " ".join(page.values("title"))


def test_one_rollout_by_ranges(runs: Path, client: TestClient) -> None:
    # Catches a transcript that is put into a page whole.
    run = make_rl_run(runs / "a")
    keep_rollouts(run, 0, [group("Count.", {" one two three" * 2000: 1.0, " four": 0.0})])
    found = client.get("/api/runs/a/-/rollouts/1?group=0&member=0").json()["group"]
    [only] = found["members"]
    spans = [span for turn in only["turns"] for piece in turn["pieces"] for span in piece["spans"]]
    assert len(spans) <= 2000
    assert only["num_tokens"] > 6000
    later = client.get(f"/api{only['range_address']['later']}").json()["group"]["members"][0]
    assert later["start"] == only["end"]
    side = client.get("/runs/a/-/rollouts/1?group=0").text
    assert "more tokens</a>" in side
    assert len(side) < 200_000


def test_held_out_rollouts(runs: Path, client: TestClient) -> None:
    run = make_rl_run(runs / "a")
    keep_rollouts(run, 2, [group("What is 5 + 5?", {" 10": 1.0})], is_test=True)
    page = client.get("/runs/a/-/rollouts/test-2").text
    assert "Held-out rollouts after step 2" in page
    found = client.get("/api/runs/a/-/rollouts/test-2?group=0").json()["group"]
    assert found["trained_at"] is None
    assert "held-out rollouts are not trained on" in found["scales"][1]["missing"]


def test_an_old_run_says_what_is_missing(runs: Path, client: TestClient) -> None:
    run = make_rl_run(runs / "a")
    for path in (run / "rollouts").glob("trained-*"):
        path.unlink()
    assert "kept no logprobs of the trainer" in client.get("/runs/a/-/rollouts/1?group=0").text
    for path in (run / "rollouts").glob("advantages-*"):
        path.unlink()
    assert "kept no advantages" in client.get("/runs/a/-/rollouts/1?group=0").text


def test_without_the_tokenizer_ids_are_shown(runs: Path, client: TestClient) -> None:
    # Catches a page that waits for a download, or that fails.
    make_rl_run(runs / "a", model_name="nobody/model")
    page = client.get("/runs/a/-/rollouts/1?group=0").text
    assert "the tokenizer of nobody/model is not on this machine" in page
    span = client.get("/api/runs/a/-/rollouts/1?group=0").json()["group"]["members"][0]["turns"][0]["pieces"][0][
        "spans"
    ]
    assert span[0]["text"] == f"{span[0]['ids'][0]} "
    assert client.get("/api/runs/a/-/rollouts/1?text=what").json()["num_found"] == 4, "logs are searched all the same"


def test_hostile_texts_stay_texts(runs: Path, client: TestClient) -> None:
    run = make_rl_run(runs / "a")
    logs = {HOSTILE: HOSTILE, "long": HOSTILE * 20_000}
    keep_rollouts(run, 0, [group(HOSTILE.replace("\ud800", ""), {" <script>": 1.0, HOSTILE[:-1]: 0.0}, logs)])
    for query in ("", "?group=0", "?group=0&member=1", "?text=%3Cscript%3E"):
        plain = Page(client.get(f"/runs/a/-/rollouts/2{query}").text)
        html = client.get(f"/runs/a/-/rollouts/1{query}").text
        page = Page(html)
        assert "img" not in page.tags
        assert page.tags.count("script") == plain.tags.count("script")
        assert "\x1b" not in html
        assert "\u202e" not in html
        assert len(html) < 200_000, "of a log of ten megabytes the beginning is shown"
        assert client.get(f"/api/runs/a/-/rollouts/1{query}").status_code == 200
    assert client.get("/api/runs/a/-/rollouts/1?text=%3Cscript%3E").json()["num_found"] == 2


def test_a_broken_line_hides_no_other(runs: Path, client: TestClient) -> None:
    run = make_rl_run(runs / "a")
    with (run / "rollouts" / "000000.jsonl").open("a") as file:
        file.write('{"number":7,"group":{}}\n{"number":8,"group"')
    found = client.get("/api/runs/a/-/rollouts/1").json()
    assert found["num_rollouts"] == 4
    assert "line 3 of 000000.jsonl" in found["problems"][0]
    assert "line 3 of 000000.jsonl" in client.get("/runs/a/-/rollouts/1").text


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("rollouts/0", 400, "is no step"),
        ("rollouts/x", 400, "is no step"),
        ("rollouts/test-", 400, "is no step"),
        ("rollouts/%D9%A1", 400, "is no step"),
        ("rollouts/9", 404, "allowed: 1, 2, 3"),
        ("rollouts/test-9", 404, "unknown step with rollouts"),
        ("rollouts/1?group=9", 400, "there is no group 9"),
        ("rollouts/1?group=x", 400, "group=x is no whole number"),
        ("rollouts/1?group=0&member=9", 400, "there is no member 9"),
        ("rollouts/1?group=0&from=-1", 400, "from=-1 is no whole number"),
        ("rollouts/1?group=0&by=color", 400, "it is one of"),
        ("rollouts/1?min_reward=much", 400, "min_reward=much is no number"),
        ("rollouts/1?min_reward=nan", 400, "min_reward=nan is no number"),
        ("rollouts/1?sort=name", 400, "sort=name is not known"),
        (f"rollouts/1?text={'a' * 1001}", 400, "at most 1,000"),
        ("rollouts/1?limit=0", 400, "limit is a whole number from 1"),
    ],
)
def test_what_cannot_be_shown_is_said(runs: Path, client: TestClient, path: str, status: int, said: str) -> None:
    make_rl_run(runs / "a")
    assert_refused(client, f"runs/a/-/{path}", status, said)


def test_a_range_behind_the_end_is_empty(runs: Path, client: TestClient) -> None:
    make_rl_run(runs / "a")
    [only] = client.get("/api/runs/a/-/rollouts/1?group=0&member=0&from=999999").json()["group"]["members"]
    assert only["turns"] == []
    assert client.get("/runs/a/-/rollouts/1?group=0&member=0&from=999999").status_code == 200


def test_rewards_that_are_no_numbers(runs: Path, client: TestClient) -> None:
    # Catches JSON that no other program reads.
    run = make_rl_run(runs / "a")
    keep_rollouts(run, 0, [group("q", {" a": float("nan"), " b": float("inf"), " c": 1.0})])
    text = client.get("/api/runs/a/-/rollouts/1?group=0").text
    json.loads(text, parse_constant=lambda name: pytest.fail(name))
    found = client.get("/api/runs/a/-/rollouts/1").json()
    assert [line["reward"] for line in found["rollouts"]] == [None, None, 1.0]
    assert client.get("/runs/a/-/rollouts/1").status_code == 200
    assert client.get("/runs/a/-/steps/1").status_code == 200


def test_a_run_without_rollouts(runs: Path, client: TestClient) -> None:
    make_run(runs / "b")
    assert "none is defined" in client.get("/api/runs/b/-/rollouts/1").json()["detail"]
