"""The worker that may leave a server."""

from collections.abc import Sequence

from cookhouse.errors import InputError
from cookhouse.naming import listed
from cookhouse.server.pool.worker_handle import WorkerHandle


def leaver(workers: Sequence[WorkerHandle], name: str) -> WorkerHandle:
    """The worker of a name, where others can go on with what it does.

    Raises:
        InputError: there is no such worker, or none beside it that trains, or samples, and is up.
    """
    staying = [worker for worker in workers if not worker.is_draining]
    found = next((worker for worker in staying if worker.name == name), None)
    if found is None:
        names = listed([worker.name for worker in staying])
        raise InputError(f"there is no worker {name!r} that could leave; there are {names}")
    others = [worker for worker in staying if worker is not found]
    if not _can_replace(found, others):
        raise InputError(f"{name} is the last worker of its kind; add another of that kind first, or stop the server")
    if not _can_replace(found, [worker for worker in others if worker.is_up]):
        names = listed([worker.name for worker in others if not worker.is_up])
        raise InputError(f"{name} is needed until another of its kind is up: {names} is being started; try again then")
    return found


def _can_replace(worker: WorkerHandle, others: Sequence[WorkerHandle]) -> bool:
    """Whether others train, if it does, and sample, if it does."""
    trains, samples = any(one.plan.trains for one in others), any(one.plan.samples for one in others)
    return (trains or not worker.plan.trains) and (samples or not worker.plan.samples)
