"""Requests of an operator about workers: one more, or that one ends."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from cookhouse.errors import InputError
from cookhouse.server.pool.calls import Calls
from cookhouse.server.pool.leaving import leaver
from cookhouse.server.pool.member import Member
from cookhouse.server.pool.plans import Kind, WorkerPlan

_log = logging.getLogger(__name__)


class WorkerRequests:
    """Lives on the event loop."""

    def __init__(self, calls: Calls, state_bytes: Callable[[str], int], *, has_journal: bool) -> None:
        """`state_bytes`: what the last state of a model takes, by the model's id."""
        self._calls = calls
        self._state_bytes = state_bytes
        self._has_journal = has_journal
        self._draining: set[asyncio.Task[None]] = set()

    def add(self, kind: Kind | None = None) -> WorkerPlan:
        """Start one more worker; the status says when it is up.

        Raises:
            InputError: there are too many, or none of this kind.
        """
        plan = self._calls.add(kind)
        _log.warning("%s is being started", plan.name)
        return plan

    def drain(self, name: str, seconds: float) -> int:
        """Give a worker nothing new from now on, and have it end: see `Calls.empty`, which goes on behind this.

        Returns:
            How many models it had, which others go on with.

        Raises:
            InputError: there is no such worker, it is the last of its kind, or its models would be lost, or wait for
                memory.
        """
        member = leaver(self._calls.members, name)
        model_ids = self._calls.models_of(member)
        num_models = len(model_ids)
        if num_models and not self._has_journal:
            raise InputError(
                f"{name} has {_models(num_models)} in training, which would be lost, since the journal is off; wait "
                "until their sessions have ended, or serve with --journal files, by which others go on with them"
            )
        self._check_room(member, model_ids)
        self._calls.leave(name)  # at once: nothing may be placed there after what was counted
        draining = asyncio.create_task(self._calls.empty(member, seconds), name=f"drain {name}")
        self._draining.add(draining)
        draining.add_done_callback(self._note_end)
        _log.warning("%s is drained, in %g s at most; it had %s", name, seconds, _models(num_models))
        return num_models

    def _check_room(self, leaving: Member, model_ids: Sequence[str]) -> None:
        """Refuse what would have models wait for memory. A state is less than what its model takes: what passes may
        still have to wait.
        """
        staying = [one for one in self._calls.members if one.plan.trains and one is not leaving and not one.is_leaving]
        free = {one.name: one.room.free_bytes for one in staying if one.room is not None}
        sizes = [self._state_bytes(model_id) for model_id in model_ids]
        if not sizes or (sum(sizes) <= sum(free.values()) and max(sizes) <= max(free.values(), default=0)):
            return
        others = ", ".join(f"{name} {_gibibytes(num_bytes)}" for name, num_bytes in free.items())
        raise InputError(
            f"{leaving.name} has {_models(len(sizes))} in training, whose states take {_gibibytes(sum(sizes))} (the "
            f"largest {_gibibytes(max(sizes))}), and too little of the others' memory is free ({others}); add a worker "
            "first (cookhouse cluster add), or wait until sessions have ended"
        )

    def close(self) -> None:
        """Leave what is being drained to the end of all."""
        for task in self._draining:
            task.cancel()

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._draining.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            _log.warning("%s: done, it has ended", task.get_name())
        else:
            _log.error("%s failed", task.get_name(), exc_info=error)


def _models(number: int) -> str:
    return "1 model" if number == 1 else f"{number} models"


def _gibibytes(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.2f} GiB"
