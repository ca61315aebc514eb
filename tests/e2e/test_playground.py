"""The playground of the live page over the local engine."""

import fcntl
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.e2e.conftest import Cookhouse, Reference

from cookhouse.view.access import Access
from cookhouse.view.place import Place
from cookhouse.view.serving import create_app

pytestmark = pytest.mark.slow

QUESTION = "What is 2 plus 2?"


def asked(client: TestClient, *weights: str, **others: Any) -> tuple[list[list[dict[str, Any]]], list[dict[str, Any]]]:
    """Tokens of each side, and all events."""
    body = {"weights": [*weights], "prompt": QUESTION, "max_tokens": 32, **others}
    response = client.post("/api/playground/answers", json=body)
    events = [json.loads(line) for line in response.text.splitlines()]
    assert not [event for event in events if event["type"] == "error"], events
    tokens: list[list[dict[str, Any]]] = [[] for _ in weights]
    for event in events:
        if event["type"] == "tokens":
            tokens[event["side"]] += event["tokens"]
    return tokens, events


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_and_its_base_model_answer_side_by_side(
    cookhouse: Cookhouse, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches answers that are not those of `cookhouse sample`, a run's service that is written to or waited for, and
    an engine that outlives the page.
    """
    for name in ("TINKER_BASE_URL", "TINKER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(cookhouse.folder)
    place = cookhouse.folder / "runs"
    run = place / "learned"
    shutil.copytree(reference.folder, run)
    sampled = cookhouse.run("sample", str(run), QUESTION, "--max-tokens", "32")
    before = contents(run)
    app = create_app(Place(place), Access("token"))
    headers = {"Authorization": "Bearer token"}
    with (run / "service" / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as the service of a run that is under way
        with TestClient(app, base_url="http://127.0.0.1", headers=headers) as client:
            tokens, events = asked(client, "cookhouse/tiny", "learned", temperature=0)
            assert len(cookhouse.servers()) == 1
            ends = {event["side"]: event["text"] for event in events if event["type"] == "end"}
            assert ends[1] == sampled.stdout.strip() != ends[0]
            prompts = [event["tokens"] for event in events if event["type"] == "prompt"]
            assert prompts[0] == prompts[1]
            assert all(token["logprob"] <= 0 for side in tokens for token in side)
            (at,) = [event["at"] for event in events if event["type"] == "difference"]
            assert ids(tokens[0])[:at] == ids(tokens[1])[:at]
            assert ids(tokens[0])[at] != ids(tokens[1])[at]
            # The same seed is the same draw, whoever else is asked.
            drawn = [asked(client, *names, temperature=1.0, seed=5)[0] for names in (("learned",), ("learned",) * 2)]
            assert [ids(side) for side in drawn[1]] == [ids(drawn[0][0])] * 2
            starts = [event for event in events if event["type"] == "note"]
            assert any("starting the local engine" in event["text"] for event in starts)
    assert contents(run) == before
    assert not cookhouse.servers()


def ids(tokens: list[dict[str, Any]]) -> list[int]:
    return [token["id"] for token in tokens]
