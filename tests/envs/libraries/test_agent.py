"""An agent as an environment of a run, over the fake service."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cookhouse.adapters import Adapters
from cookhouse.errors import InputError
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.recipes import dry_run, run_async
from cookhouse.telemetry import read_metrics
from cookhouse.training import FakeService

pytestmark = pytest.mark.anyio

AGENT = """
async def play(task, client):
    asked = [{"role": "user", "content": task["question"]}]
    answer = await client.chat.completions.create(model="any", messages=asked)
    said = answer.choices[0].message.content
    if said == "7":
        raise RuntimeError("no luck")
    asked += [{"role": "assistant", "content": said}, {"role": "user", "content": "Again."}]
    again = await client.chat.completions.create(model="any", messages=asked)
    return float(again.choices[0].message.content == said)
"""


def digit(theta: Any, prompt_T: Sequence[int], chance: Any) -> Sequence[int]:
    del theta, prompt_T
    encode = get_tokenizer("cookhouse/tiny").encode
    answer: list[int] = encode(f"{chance.integers(6, 9)}<|im_end|>", add_special_tokens=False)
    return answer


def settings(folder: Path) -> dict[str, Any]:
    (folder / "mine.py").write_text(AGENT)
    (folder / "tasks.jsonl").write_text("".join(json.dumps({"question": f"Say {n}."}) + "\n" for n in range(4)))
    return {
        "env": "agent",
        "agent": f"{folder}/mine.py:play",
        "dataset_path": str(folder / "tasks.jsonl"),
        "renderer_name": "qwen3_instruct",
        "batch_size": 2,
        "group_size": 8,
        "max_steps": 2,
        "eval_every": 0,
        "log_path": str(folder / "run"),
        "num_samples": 0,
    }


async def test_an_agent_trains_and_its_failures_are_records(tmp_path: Path) -> None:
    """Catches an agent whose crash ends the run, and rollouts that no transcript has."""
    service = FakeService(answer=digit)
    await run_async("rl", settings(tmp_path), adapters=Adapters(service=service.connect, sinks=[]))
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert rows[0]["env/all/turns_per_episode"] == 2.0
    assert rows[0]["env/all/tokens_again"] == 0.0
    assert rows[0]["rollouts/dropped"] > 0
    assert "env/all/tool_calls" not in rows[0]  # nobody offers a tool
    lines = (tmp_path / "run" / "rollouts" / "000000.jsonl").read_text().splitlines()
    groups = [json.loads(line)["group"] for line in lines]
    assert all("RuntimeError: no luck" in failure["reason"] for group in groups for failure in group["failures"])
    turns = groups[0]["trajectories"][0]["turns"]
    assert turns[1]["observation"]["shared"] == len(turns[0]["observation"]["tokens"]) + len(turns[0]["tokens"])


@pytest.mark.parametrize(
    ("without", "reason"), [("agent", "needs agent=file.py:NAME"), ("dataset_path", "needs dataset_path=FILE")]
)
def test_what_an_agent_needs_is_said_before_the_run(tmp_path: Path, without: str, reason: str) -> None:
    given = settings(tmp_path)
    del given[without]
    with pytest.raises(InputError, match=reason):
        dry_run("rl", given)
