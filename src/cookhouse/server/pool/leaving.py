"""Which worker may leave a server, and what goes with one."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cookhouse.errors import InputError
from cookhouse.naming import listed
from cookhouse.server.pool.member import Member


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """What was in the memory of a worker that ended, or leaves, and nowhere else."""

    reason: str
    model_ids: Collection[str]
    snapshot_ids: Collection[str]
    is_loss: bool = True
    """Whether the worker ended by itself, perhaps for what it was asked to do."""
    worker: str = "the engine"
    """In words."""

    def told(self, num_requests: int | None) -> str:
        """What to say of a loss; `num_requests` run again, None: nothing can."""
        said = f"{self.worker} was lost: {self.reason}; another is started"
        models = f"{len(self.model_ids)} model{'s' * (len(self.model_ids) != 1)}"
        if num_requests is None:
            return f"{said}, and what {models} had learned is lost: the server keeps no journal"
        requests = f"{num_requests:,} request{'s' * (num_requests != 1)}"
        return f"{said}, and work goes on: {requests} of {models} run again, and what had no answer yet"


def leaver(members: Sequence[Member], name: str) -> Member:
    """The worker of a name, where others can go on with what it does.

    Raises:
        InputError: there is no such worker, or none beside it that trains, or samples, and is up.
    """
    staying = [member for member in members if not member.is_leaving]
    found = next((member for member in staying if member.name == name), None)
    if found is None:
        names = listed([member.name for member in staying])
        raise InputError(f"there is no worker {name!r} that could leave; there are {names}")
    others = [member for member in staying if member is not found]
    if not _can_replace(found, others):
        raise InputError(f"{name} is the last worker of its kind; add another of that kind first, or stop the server")
    if not _can_replace(found, [member for member in others if member.is_up]):
        names = listed([member.name for member in others if not member.is_up])
        raise InputError(f"{name} is needed until another of its kind is up: {names} is being started; try again then")
    return found


def _can_replace(member: Member, others: Sequence[Member]) -> bool:
    """Whether others train, if it does, and sample, if it does."""
    trains, samples = any(one.plan.trains for one in others), any(one.plan.samples for one in others)
    return (trains or not member.plan.trains) and (samples or not member.plan.samples)
