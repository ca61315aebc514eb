"""`cookhouse chat` over the engine."""

import json

import pytest
from tests.e2e.conftest import Cookhouse, Reference

pytestmark = pytest.mark.slow


def test_one_engine_answers_a_whole_conversation(cookhouse: Cookhouse, reference: Reference) -> None:
    # Catches an engine that is started for each message, and an answer in pieces that is not the answer in one.
    question = "What is 2 plus 2?"
    run = str(reference.folder)
    lines = [
        question,
        "/clear",
        question,
        "/model cookhouse/tiny",
        "/again",
        f"/model {run}",
        "/again",
        "/save c.jsonl",
    ]
    done = cookhouse.run("chat", run, "--temperature", "0", stdin="\n".join(lines) + "\n")
    assert done.returncode == 0, done.stderr
    first, second, other, again = done.stdout.splitlines()
    assert first == second == again != other
    assert done.stderr.count("starting the local engine") == 1
    whole = cookhouse.run("sample", run, question)
    assert whole.stdout.splitlines() == [first]
    (row,) = [json.loads(line) for line in (cookhouse.folder / "c.jsonl").read_text().splitlines()]
    assert row["messages"] == [{"role": "user", "content": question}, {"role": "assistant", "content": first}]
    assert not cookhouse.servers()
