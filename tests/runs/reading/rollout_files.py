"""Files of rollouts as a run writes them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import tinker

from cookhouse.rl import TokensWithLogprobs, Trajectory, TrajectoryGroup, Transition, group_to_json


def turn(
    seen: Sequence[int],
    said: Sequence[int],
    *,
    reward: float = 0.0,
    logs: Mapping[str, str] | None = None,
    logprobs: Sequence[float] | None = None,
) -> Transition:
    return Transition(
        observation=tinker.ModelInput.from_ints([*seen]),
        action=TokensWithLogprobs(tokens=[*said], maybe_logprobs=logprobs or [-0.5] * len(said)),
        reward=reward,
        episode_done=True,
        metrics={"correct": reward},
        logs=logs or {},
    )


def group(*rollouts: Sequence[Transition], rewards: Sequence[float] | None = None) -> TrajectoryGroup:
    return TrajectoryGroup(
        trajectories_G=[
            Trajectory(transitions=turns, final_observation=tinker.ModelInput.empty()) for turns in rollouts
        ],
        group_rewards_G=rewards or [0.0] * len(rollouts),
        group_metrics_G=[{}] * len(rollouts),
        tags=["sums"],
        version=3,
        seconds=1.5,
    )


def write_groups(path: Path, groups: Sequence[TrajectoryGroup], *, first: int = 0) -> Path:
    """As the log of rollouts does; of `test-` files, as evaluations do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for number, each in enumerate(groups, start=first):
            text = group_to_json(each)
            file.write((text if path.name.startswith("test-") else f'{{"number":{number},"group":{text}}}') + "\n")
    return path


def write_values(path: Path, key: str, rows: Mapping[tuple[int, int], object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"step": step, "number": number, key: value}) for (step, number), value in rows.items()]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path
