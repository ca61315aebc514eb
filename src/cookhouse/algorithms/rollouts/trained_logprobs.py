"""Logprobs of what was sampled under the weights that are trained, of each turn of a step's groups."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cookhouse.algorithms.base.json_lines import shortened
from cookhouse.algorithms.rollouts.rollout_log import GroupId, GroupLogprobs
from cookhouse.rl import Trajectory, TrajectoryGroup
from cookhouse.rl.learning.assembly import by_turn
from cookhouse.training import Answered
from cookhouse.training.loop.objective import answered_datums


def trained_logprobs(
    parts: Answered[Any], is_masked: Callable[[Trajectory], bool] = lambda _: False
) -> dict[GroupId, GroupLogprobs]:
    """Of the groups of a step that have advantages, by the answers that came first: where groups are trained on several
    times, further ones come from weights that the step has changed already.
    """
    found: dict[GroupId, GroupLogprobs] = {}
    for part in parts:
        payload, answered = part[0].payload, answered_datums([part])
        if not payload.groups_P:  # of a source that writes no rollout log
            continue
        chosen: list[tuple[GroupId, TrajectoryGroup]] = []
        logprobs_D: list[NDArray[Any]] = []
        for finished, count in zip(payload.groups_P, payload.num_datums_P, strict=True):
            own = list(islice(answered, count))
            if finished.group is None or finished.advantages is None or finished.id in found:
                continue
            chosen.append((finished.id, finished.group))
            logprobs_D += [fields["logprobs"].to_numpy() for _, fields in own]
        by_group = by_turn([group for _, group in chosen], _shortened(logprobs_D), is_masked=is_masked)
        found |= {group_id: turns for (group_id, _), turns in zip(chosen, by_group, strict=True)}
    return found


def _shortened(values_D: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Each `shortened`, all at once: a batch has many that are short."""
    ends = np.cumsum([values.size for values in values_D])
    joined = shortened(np.concatenate(values_D or [np.zeros(0)]))
    return [joined[end - values.size : end] for end, values in zip(ends, values_D, strict=True)]
