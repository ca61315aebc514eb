"""Fills a batch with groups that teach something (https://arxiv.org/abs/2503.14476, section 3.2: dynamic sampling)."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from cookhouse.algorithms.rollouts.pool import FinishedGroup
from cookhouse.rl import TrajectoryGroup

logger = logging.getLogger(__name__)

Draw = Callable[[int], Awaitable[Sequence[FinishedGroup]]]
"""Rolls out further problems, at most so many; fewer where the data gives no more."""


@dataclass(frozen=True, kw_only=True)
class Refill:
    """Replaces groups that teach nothing by those of further problems, until a batch is full."""

    teaches: Callable[[TrajectoryGroup], bool]
    max_batches: int
    """A step samples at most so many times its batch."""

    async def __call__(
        self, step: int, groups_P: Sequence[FinishedGroup], draw: Draw
    ) -> tuple[list[FinishedGroup], list[FinishedGroup]]:
        """The batch, with as many groups as there were, and those that were replaced. Where too few can be had, groups
        that teach nothing stay, with a warning. One that failed is not replaced.
        """
        batch, replaced = list(groups_P), list[FinishedGroup]()
        left = (self.max_batches - 1) * len(batch)
        while (useless := [each for each in batch if not self._is_useful(each)]) and left:
            drawn = await draw(min(len(useless), left))
            if not drawn:
                break
            left -= len(drawn)
            replaced += useless[: len(drawn)]
            gone = {each.id for each in replaced}
            batch = [*(each for each in batch if each.id not in gone), *drawn]
        if useless:
            logger.warning(
                "step %d: %d of %d groups have one reward for all, after %d were sampled; the step goes without them. "
                "Easier problems, a larger group_size or a higher max_batches_drawn (now %d) give more",
                step,
                len(useless),
                len(batch),
                len(batch) + len(replaced),
                self.max_batches,
            )
        return batch, replaced

    def _is_useful(self, finished: FinishedGroup) -> bool:
        return finished.group is None or self.teaches(finished.group)
