"""Trajectory groups as JSON, from which they come back as they were."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import tinker

from cookhouse.errors import InputError
from cookhouse.rl.sampling.sampler import TokensWithLogprobs
from cookhouse.rl.trajectory import RolloutFailure, Trajectory, TrajectoryGroup, Transition, observed_tokens
from cookhouse.telemetry import Entry, entries_from_json, entries_to_json

_FORMAT = 1


def group_to_json(group: TrajectoryGroup) -> str:
    """One line of ASCII JSON. Floats are written so that they read back as the same double, NaN and infinity included.

    An observation is written as the number of leading tokens it shares with the sequence before it, and the rest, so
    that a long conversation costs its length once.

    Raises:
        InputError: an observation holds something that is not text.
    """
    value = {
        "format": _FORMAT,
        "version": group.version,
        "seconds": group.seconds,
        "tags": list(group.tags),
        "group_rewards": [float(reward) for reward in group.group_rewards_G],
        "group_metrics": [_floats_of(metrics) for metrics in group.group_metrics_G],
        "failures": [asdict(failure) for failure in group.failures],
        "trajectories": [_trajectory_to_json(trajectory) for trajectory in group.trajectories_G],
        **_entries_to_json(group.entries),
    }
    return json.dumps(value, separators=(",", ":"))


def group_from_json(text: str) -> TrajectoryGroup:
    """The group that was written; sequences come back as lists, `failures` as a tuple.

    Raises:
        InputError: the text is no such group.
    """
    try:
        value = json.loads(text)
        if value["format"] != _FORMAT:
            raise InputError(f"a transcript has format {value['format']!r}; this version reads {_FORMAT}")
        return TrajectoryGroup(
            trajectories_G=[_trajectory_from_json(trajectory) for trajectory in value["trajectories"]],
            group_rewards_G=value["group_rewards"],
            group_metrics_G=value["group_metrics"],
            tags=value["tags"],
            version=value["version"],
            failures=tuple(RolloutFailure(**failure) for failure in value["failures"]),
            seconds=value["seconds"],
            entries=entries_from_json(value.get("entries", [])),
        )
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # not JSON, or of another shape
        raise InputError(f"not the transcript of a group: {type(error).__name__}: {error}") from error


def _trajectory_to_json(trajectory: Trajectory) -> dict[str, Any]:
    previous: list[int] = []
    turns = []
    for transition in trajectory.transitions:
        action = [int(token) for token in transition.action.tokens]
        logprobs = transition.action.maybe_logprobs
        turns.append(
            {
                "observation": _input_to_json(transition.observation, previous),
                "tokens": action,
                "logprobs": None if logprobs is None else [float(logprob) for logprob in logprobs],
                **({"is_truncated": True} if transition.action.is_truncated else {}),
                **_grammar_to_json(transition.action),
                "reward": float(transition.reward),
                "done": bool(transition.episode_done),
                "metrics": _floats_of(transition.metrics),
                "logs": dict(transition.logs),
                **_entries_to_json(transition.entries),
            }
        )
        previous = observed_tokens(transition.observation) + action
    return {
        "turns": turns,
        "final_observation": _input_to_json(trajectory.final_observation, previous),
        "stop_reason": trajectory.stop_reason,
    }


def _trajectory_from_json(value: Mapping[str, Any]) -> Trajectory:
    previous: list[int] = []
    transitions = []
    for turn in value["turns"]:
        observation = _input_from_json(turn["observation"], previous)
        transitions.append(
            Transition(
                observation=observation,
                action=TokensWithLogprobs(
                    tokens=turn["tokens"],
                    maybe_logprobs=turn["logprobs"],
                    is_truncated=turn.get("is_truncated", False),
                    is_masked=turn.get("is_masked"),
                    is_grammar_end=turn.get("is_grammar_end", False),
                ),
                reward=turn["reward"],
                episode_done=turn["done"],
                metrics=turn["metrics"],
                logs=turn["logs"],
                entries=entries_from_json(turn.get("entries", [])),
            )
        )
        previous = observation.to_ints() + turn["tokens"]
    return Trajectory(
        transitions=transitions,
        final_observation=_input_from_json(value["final_observation"], previous),
        stop_reason=value["stop_reason"],
    )


def _grammar_to_json(action: TokensWithLogprobs) -> dict[str, Any]:
    """Nothing where no grammar was at work."""
    masked = {} if action.is_masked is None else {"is_masked": [bool(one) for one in action.is_masked]}
    return {**masked, **({"is_grammar_end": True} if action.is_grammar_end else {})}


def _input_to_json(observation: tinker.ModelInput, previous: Sequence[int]) -> dict[str, Any]:
    tokens = observed_tokens(observation)
    shared = len(previous) if tokens[: len(previous)] == previous else 0
    value: dict[str, Any] = {"shared": shared, "tokens": tokens[shared:]}
    if len(observation.chunks) != 1:
        value["chunks"] = [chunk.length for chunk in observation.chunks]
    return value


def _input_from_json(value: Mapping[str, Any], previous: Sequence[int]) -> tinker.ModelInput:
    tokens = [*previous[: value["shared"]], *value["tokens"]]
    chunks = []
    for length in value.get("chunks", [len(tokens)]):
        chunks.append(tinker.EncodedTextChunk(tokens=tokens[:length]))
        tokens = tokens[length:]
    return tinker.ModelInput(chunks=list(chunks))


def _entries_to_json(entries: Sequence[Entry]) -> dict[str, Any]:
    """Nothing where nothing was noted, which is most often."""
    return {"entries": entries_to_json(entries)} if entries else {}


def _floats_of(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}
