"""Failures of members of a group, and the error of a group that could not do without them."""

from collections.abc import Sequence

from cookhouse.errors import CookhouseError
from cookhouse.rl.trajectory import RolloutFailure
from cookhouse.settings import RolloutStrategy

FAIL_FAST = RolloutStrategy()
"""The first failure of any member fails the group and cancels the others."""


def retry(rollout_attempts: int) -> RolloutStrategy:
    """Attempt each member so often; one that fails them all fails the group."""
    return RolloutStrategy(rollout_attempts=rollout_attempts)


def minimum_viable(min_group_members: int, *, rollout_attempts: int = 1) -> RolloutStrategy:
    """Drop members that fail all their attempts, as long as `min_group_members` can be left."""
    return RolloutStrategy(rollout_attempts=rollout_attempts, min_group_members=min_group_members)


class GroupFailedError(CookhouseError):
    """A group lost more members than its strategy allows; the exception of the last failure is chained."""

    def __init__(self, failures: Sequence[RolloutFailure]) -> None:
        last = failures[-1]
        who = "the group" if last.member < 0 else f"member {last.member}, attempt {last.attempt + 1}"
        num_earlier = sum(failure.origin != "partner" for failure in failures) - 1
        earlier = f" (after {num_earlier} earlier failures)" if num_earlier > 0 else ""
        super().__init__(f"a group of rollouts failed in {last.origin}, {who}: {last.reason}{earlier}")
        self.failures = tuple(failures)

    def __reduce__(self) -> tuple[type["GroupFailedError"], tuple[Sequence[RolloutFailure]]]:
        return type(self), (self.failures,)  # pickle would pass the message to __init__
