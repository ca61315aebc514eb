"""Checking what a `step` returned: everything that a user's environment says of one step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cookhouse.callables.returned import number_of, refused, returned_metrics, returned_reward


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnedStep:
    """Common fields of `StepResult` and `MessageStepResult`; its own copies."""

    reward: float
    episode_done: bool
    metrics: Mapping[str, float]
    logs: Mapping[str, str]
    num_tool_calls: int


def returned_step(step: Callable[..., Any], result: Any, wants: type) -> ReturnedStep:
    """Read what the function `step` returned: the fields of `wants`. Raises `InputError` for anything else."""
    missing = [name for name in ("reward", "episode_done", "metrics", "logs") if not hasattr(result, name)]
    if missing:
        raise refused(step, result, f"it must return a {wants.__name__}, with reward and episode_done")
    done, calls = number_of(result.episode_done), number_of(getattr(result, "num_tool_calls", 0))
    if done not in (0.0, 1.0):
        raise refused(step, result.episode_done, "it must be true or false", "episode_done=")
    if calls is None or not calls.is_integer() or calls < 0:
        raise refused(step, result.num_tool_calls, "it must be a whole number from 0 on", "num_tool_calls=")
    if not isinstance(result.logs, Mapping):
        raise refused(step, result.logs, "logs are a dict of texts by name, {} where there are none", "the logs ")
    return ReturnedStep(
        reward=returned_reward(step, result.reward),
        episode_done=bool(done),
        metrics=returned_metrics(step, result.metrics),
        logs={str(name): str(text) for name, text in result.logs.items()},
        num_tool_calls=int(calls),
    )
