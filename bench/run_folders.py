"""Folders of runs to look at: hundreds of several MB each, one step of thousands of rollouts, and a hostile transcript.

Large files are written once and linked: a place of gigabytes takes seconds and some MB.
"""

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import tinker

from cookhouse.rl import TokensWithLogprobs, Trajectory, TrajectoryGroup, Transition, group_to_json

HOSTILE: Final = "<script>alert(1)</script><img src=x onerror=alert(2)>\x1b[2J\x1b]0;title\x07\u202e"
"""What a page must neither run nor load, and a terminal not obey."""
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_ROWS: Final = 400
_SAMPLES: Final = 8


def make_place(folder: Path, num_runs: int, num_bytes: int) -> None:
    """Runs of so many bytes each, nearly all of them rollouts."""
    large = folder / ".rollouts.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    write_rollouts(large, [0.0, 1.0], min_bytes=num_bytes)
    for number in range(num_runs):
        run = make_run(folder / f"run-{number:03}", number)
        (run / "rollouts").mkdir()
        os.link(large, run / "rollouts" / "000000.jsonl")


def make_run(folder: Path, number: int = 0) -> Path:
    """A finished run with some hundred rows of metrics and without rollouts."""
    folder.mkdir()
    begun = _START + timedelta(minutes=number)
    ended = begun + timedelta(hours=1)
    launch = {"started_at": begun.isoformat(), "ended_at": ended.isoformat(), "status": "finished"}
    config = {"model_name": "cookhouse/tiny", "learning_rate": 1e-4 * (1 + number % 7), "max_steps": _ROWS}
    recipe = ("math_rl", "sl_basic", "dpo")[number % 3]
    _write(folder / "config.json", {"recipe": recipe, "config": config, "seed": number})
    _write(folder / "run.json", {"launches": [launch]})
    rows = [_metrics(step, number) for step in range(_ROWS)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def write_rollouts(path: Path, rewards: Sequence[float], *, num_rollouts: int = 0, min_bytes: int = 0) -> None:
    """Groups of eight rollouts, with these rewards in turn, until there are so many rollouts and bytes."""
    groups = [group_to_json(_group(rewards, first)) for first in range(len(rewards))]
    number = size = 0
    with path.open("w", encoding="utf-8") as file:
        while number * _SAMPLES < num_rollouts or size < min_bytes:
            size += file.write(f'{{"number":{number},"group":{groups[number % len(groups)]}}}\n')
            number += 1


def write_hostile(path: Path, num_bytes: int) -> None:
    """A group, a line of the file, whose texts are hostile and long."""
    logs = {"question": HOSTILE, "expected": HOSTILE, "answer": HOSTILE + "x" * (num_bytes // _SAMPLES)}
    path.write_text(f'{{"number":0,"group":{group_to_json(_group([1.0, 0.0], 0, logs))}}}\n', encoding="utf-8")


def _group(rewards: Sequence[float], first: int, logs: Mapping[str, str] | None = None) -> TrajectoryGroup:
    """Eight rollouts of a turn each, with these rewards in turn from the first of them on."""
    return TrajectoryGroup(
        trajectories_G=[_rollout(rewards[(first + index) % len(rewards)], logs or {}) for index in range(_SAMPLES)],
        group_rewards_G=[0.0] * _SAMPLES,
        group_metrics_G=[{}] * _SAMPLES,
        tags=["sums"],
        version=0,
        seconds=1.0,
    )


def _rollout(reward: float, logs: Mapping[str, str]) -> Trajectory:
    turn = Transition(
        observation=tinker.ModelInput.from_ints(list(range(1, 41))),
        action=TokensWithLogprobs(tokens=list(range(41, 101)), maybe_logprobs=[-0.5] * 60),
        reward=reward,
        episode_done=True,
        metrics={"correct": reward},
        logs={"question": "What is 2 + 3?", "expected": "5", "answer": f"{5 * reward:g}", **logs},
    )
    return Trajectory(transitions=[turn], final_observation=tinker.ModelInput.empty())


def _metrics(step: int, number: int) -> Mapping[str, Any]:
    values = {f"train/metric_{index}": (step * 31 + index * number) % 97 / 97 for index in range(20)}
    held_out = {"test/correct": 0.2 + step / 1000, "test/correct_stderr": 0.01} if step % 40 == 0 else {}
    return {"step": step, "env/reward/mean": step / _ROWS, "time/step_seconds": 1.5, **values, **held_out}


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))
