"""Questions to two weights, over a fake engine."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.view.playground.conftest import FakeEngine, asked, make_trained, of

from cookhouse.errors import ServiceError
from cookhouse.view.playground.answers import Difference


def said(events: list[dict[str, Any]], side: int) -> str:
    tokens = [token for event in of(events, "tokens", side) for token in event["tokens"]]
    return "".join(token["text"] for token in tokens if not token["is_special"])


def test_both_answer_the_same_prompt_and_the_first_difference_is_told(client: TestClient, engine: FakeEngine) -> None:
    engine.says = {"first": "It is 日本 blue", "group/second": "It is 日本 green"}
    events = asked(client, "first", "group/second", system="Be brief.")
    prompts = of(events, "prompt")
    assert prompts[0]["tokens"] == prompts[1]["tokens"]
    assert next(token["text"] for token in prompts[0]["tokens"] if token["is_special"]) == "<|im_start|>"
    assert "Be brief." in "".join(token["text"] for token in prompts[0]["tokens"])
    assert [said(events, side) for side in (0, 1)] == ["It is 日本 blue", "It is 日本 green"]
    ids = [[token["id"] for event in of(events, "tokens", side) for token in event["tokens"]] for side in (0, 1)]
    (difference,) = of(events, "difference")
    at = difference["at"]
    assert ids[0][:at] == ids[1][:at]
    assert ids[0][at] != ids[1][at]
    assert all(token["logprob"] <= 0 for event in of(events, "tokens") for token in event["tokens"])
    assert [event["note"] for event in of(events, "end")] == [None, None]
    assert events[-1]["answers"]


def test_answers_that_are_alike_have_no_difference(client: TestClient, engine: FakeEngine) -> None:
    engine.says = {"first": "Yes", "group/second": "Yes"}
    assert not of(asked(client, "first", "group/second"), "difference")


@pytest.mark.parametrize(
    ("left", "right", "ended", "at"),
    [
        ([1, 2], [1, 2], {0, 1}, None),
        ([1, 2], [1, 2, 3], set(), None),
        ([1, 2], [1, 2, 3], {0}, 2),
        ([1, 2, 3], [1, 2], {0, 1}, 2),
        ([1, 9, 3], [1, 2], set(), 1),
        ([], [1], {0}, 0),
    ],
)
def test_the_first_difference_is_told_once_and_as_soon_as_it_is_certain(
    left: list[int], right: list[int], ended: set[int], at: int | None
) -> None:
    """Catches an answer that is the beginning of the other, and is taken for the same or for another too early."""
    told: list[Any] = []
    difference = Difference(told.append, are_ids=True)
    for side, ids in enumerate((left, right)):
        for token in ids:
            difference.say(side, [{"id": token, "text": "x"}])
    for side in sorted(ended):
        difference.end(side)
    assert told == ([] if at is None else [{"type": "difference", "at": at}])


def test_two_base_models_differ_by_texts_not_by_ids() -> None:
    told: list[Any] = []
    difference = Difference(told.append, are_ids=False)
    difference.say(0, [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}])
    difference.say(1, [{"id": 7, "text": "a"}, {"id": 2, "text": "c"}])
    assert told == [{"type": "difference", "at": 1}]


def test_a_base_model_is_asked_in_the_chat_format_of_the_run(client: TestClient, runs: Path) -> None:
    """Catches a before and an after that were asked different things."""
    make_trained(runs / "colon", 4)
    config = runs / "colon/config.json"
    config.write_text(config.read_text().replace("qwen3_instruct", "role_colon"))
    prompts = of(asked(client, "cookhouse/tiny", "colon"), "prompt")
    assert prompts[0]["tokens"] == prompts[1]["tokens"]


def test_a_text_is_gone_on_with_as_it_stands(client: TestClient) -> None:
    events = asked(client, "first", form="text", prompt="Once upon")
    assert "".join(token["text"] for token in of(events, "prompt")[0]["tokens"]) == "Once upon"
    assert said(events, 0) == "first"
    assert events[-1]["answers"] is None  # of one answer nobody can say that it is better


def test_what_is_cut_is_said(client: TestClient) -> None:
    (end,) = of(asked(client, "group/second", max_tokens=2), "end")
    assert end["note"] == "the answer is cut at 2 tokens (max tokens)"


def test_a_long_prompt_is_shown_by_its_ends(client: TestClient) -> None:
    (prompt,) = of(asked(client, "first", prompt="a b c d e f g h " * 1000, max_tokens=1), "prompt")
    assert len(prompt["tokens"]) == 2048
    assert prompt["num_left_out"] == prompt["num_tokens"] - 2048


def test_one_that_fails_is_told_in_words_and_the_other_answers(client: TestClient, engine: FakeEngine) -> None:
    engine.fails["first"] = ServiceError("the service is gone")
    events = asked(client, "first", "group/second")
    assert of(events, "error") == [{"type": "error", "side": 0, "text": "the service is gone"}]
    assert said(events, 1) == "group/second"
    assert events[-1] == {"type": "done", "answers": None}
    engine.fails.clear()
    assert asked(client, "first", "group/second")[-1]["answers"]
    assert engine.num_started == 2  # one that failed is not asked again


def test_a_fault_of_ours_shows_no_text_of_its_own(
    client: TestClient, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.fails["first"] = RuntimeError("secret")
    (error,) = of(asked(client, "first"), "error")
    assert error["text"] == "it failed (RuntimeError); where this page is served, the terminal shows why"
    assert "secret" in caplog.text


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"weights": ["frist"]}, 404, "unknown weights 'frist'; did you mean first?"),
        ({"weights": ["group/secnd"]}, 404, "did you mean group/second?"),
        ({"weights": ["/etc"]}, 404, "unknown weights '/etc'"),
        ({"weights": ["../runs/first"]}, 404, "unknown weights '../runs/first'"),
        ({"weights": ["new"]}, 400, "has saved no checkpoint yet"),
        ({"weights": ["tinker://nobody/s/1"]}, 400, "is not on this machine's embedded service"),
        ({"weights": ["other/model-8B"]}, 404, "unknown weights"),
        ({"weights": []}, 400, "one or two names"),
        ({"weights": ["first"] * 3}, 400, "one or two names"),
        ({"weights": [7]}, 400, "one or two names"),
        ({"prompt": "  "}, 400, "the prompt is empty"),
        ({"prompt": "a" * 20_001}, 400, "20,001 characters, and 20,000 are the most"),
        ({"prompt": "\ud800"}, 400, "half a character"),
        ({"prompt": 7}, 400, "prompt is text, not int"),
        ({"max_tokens": 10**6}, 400, "max_tokens is a whole number from 1 to 4,096"),
        ({"max_tokens": 1.5}, 400, "max_tokens is a whole number"),
        ({"temperature": float("nan")}, 400, "temperature is a number from 0 to 10"),
        ({"temperature": True}, 400, "temperature is a number"),
        ({"seed": -1}, 400, "seed is a whole number from 0"),
        ({"form": "poem"}, 400, "form is 'poem'; it is chat or text"),
        ({"form": "text", "system": "Be brief."}, 400, "has no system message"),
        ({"top_k": 1}, 400, "a question has no 'top_k'"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_words(
    body: dict[str, Any], status: int, said: str, client: TestClient, engine: FakeEngine
) -> None:
    question = {"weights": ["first"], "prompt": "Why?", **body}
    headers = {"Content-Type": "application/json"}
    response = client.post("/api/playground/answers", content=json.dumps(question), headers=headers)
    assert (response.status_code, said in response.json()["detail"]) == (status, True), response.text
    assert engine.num_started == 0


def test_bodies_are_bounded_and_of_json(client: TestClient) -> None:
    address = "/api/playground/answers"
    for kind, content, status in (
        ("application/json", b" " * ((1 << 18) + 1), 413),
        ("application/json", b"{", 400),
        ("application/json", b"[" * 100_000, 400),
        ("application/json", b"[]", 400),
        ("application/json", b"\xff", 400),
        ("text/plain", b"{}", 415),
        ("application/x-www-form-urlencoded", b"weights=first", 415),
    ):
        response = client.post(address, content=content, headers={"Content-Type": kind})
        assert response.status_code == status, (kind, content[:20], response.text)


@pytest.mark.parametrize("address", ["/api/playground/answers", "/api/playground/labels"])
def test_pages_of_others_cannot_ask(address: str, client: TestClient, engine: FakeEngine) -> None:
    """Catches a page at another port of this machine, with which the browser sends our cookie."""
    body = {"weights": ["first"], "prompt": "Why?"}
    for headers in (
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "null"},
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Authorization": "Bearer wrong"},
    ):
        assert client.post(address, json=body, headers=headers).status_code == 403, headers
    assert client.post(address, json=body, headers={"Host": "evil.example"}).status_code == 421
    assert engine.num_started == 0
