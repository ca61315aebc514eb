"""Filter over the rollouts of a step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cookhouse.runs.reading.rollout_texts import RolloutTexts
from cookhouse.runs.reading.rollouts import GroupFacts, RolloutIndex


class FoundRollout(NamedTuple):
    """A rollout of an index."""

    group: GroupFacts
    member: int

    @property
    def reward(self) -> float:
        return self.group.rewards[self.member]


@dataclass(frozen=True, kw_only=True)
class RolloutFilter:
    """Conditions on rollouts; the default is all."""

    min_reward: float = -math.inf
    max_reward: float = math.inf
    text: str = ""
    """Of which case does not matter."""


def find_rollouts(index: RolloutIndex, wanted: RolloutFilter, texts: RolloutTexts | None) -> list[FoundRollout]:
    """The rollouts of an index that fit, in its order; `texts` are needed where a text is wanted. A reward that is no
    number fits where no reward is asked for.
    """
    needle = wanted.text.lower()
    of_group: Sequence[Sequence[str]] = texts.of_group if texts is not None and needle else ()
    any_reward = wanted.min_reward == -math.inf and wanted.max_reward == math.inf
    return [
        FoundRollout(group, member)
        for place, group in enumerate(index.groups)
        for member, reward in enumerate(group.rewards)
        if (any_reward or wanted.min_reward <= reward <= wanted.max_reward)
        and (not needle or (place < len(of_group) and needle in of_group[place][member]))
    ]
