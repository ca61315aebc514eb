"""Which worker may leave a server, and what goes with one."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cookhouse.errors import InputError
from cookhouse.naming import listed
from cookhouse.server.workers.member import Member


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """What was in the memory of a worker that ended, or leaves, and nowhere else."""

    reason: str
    model_ids: Collection[str]
    snapshot_ids: Collection[str]
    is_loss: bool = True
    """Whether the worker ended by itself, perhaps for what it was asked to do."""


def leaver(members: Sequence[Member], name: str) -> Member:
    """The worker of a name, where others can go on with what it does.

    Raises:
        InputError: there is no such worker, or none beside it that trains, or samples.
    """
    staying = [member for member in members if not member.is_leaving]
    found = next((member for member in staying if member.name == name), None)
    if found is None:
        names = listed([member.name for member in staying])
        raise InputError(f"there is no worker {name!r} that could leave; there are {names}")
    others = [member.plan for member in staying if member is not found]
    trains, samples = any(plan.trains for plan in others), any(plan.samples for plan in others)
    if (found.plan.trains and not trains) or (found.plan.samples and not samples):
        raise InputError(f"{name} is the last worker of its kind; add another of that kind first, or stop the server")
    return found
