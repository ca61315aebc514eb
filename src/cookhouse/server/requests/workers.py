"""What an operator asks of a server's workers: one more, or that one ends."""

import asyncio
import logging

from cookhouse.errors import InputError
from cookhouse.server.sequencer.calls import Calls
from cookhouse.server.workers.leaving import leaver
from cookhouse.server.workers.plans import Kind, WorkerPlan

_log = logging.getLogger(__name__)


class WorkerRequests:
    """Lives on the event loop."""

    def __init__(self, calls: Calls, *, has_journal: bool) -> None:
        self._calls = calls
        self._has_journal = has_journal
        self._draining: set[asyncio.Task[None]] = set()

    def add(self, kind: Kind | None = None) -> WorkerPlan:
        """Start one more worker; the status tells when it is up.

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
            InputError: there is no such worker, it is the last of its kind, or its models would be lost.
        """
        member = leaver(self._calls.members, name)
        num_models = len(self._calls.models_of(member))
        if num_models and not self._has_journal:
            raise InputError(
                f"{name} has {_models(num_models)} in training, which would be lost, since the journal is off; wait "
                "until their sessions have ended, or serve with --journal files, by which others go on with them"
            )
        self._calls.leave(name)  # at once: nothing may be placed there after what was counted
        draining = asyncio.create_task(self._calls.empty(member, seconds), name=f"drain {name}")
        self._draining.add(draining)
        draining.add_done_callback(self._note_end)
        _log.warning("%s is drained, in %g s at most; it had %s", name, seconds, _models(num_models))
        return num_models

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
