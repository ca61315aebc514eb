"""Leftovers of earlier processes, before any of them is brought back: sessions, bodies and folders."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from cookhouse.errors import InputError
from cookhouse.naming import listed
from cookhouse.server.refusals import StorageBusyError
from cookhouse.server.requests.offered_models import is_offered
from cookhouse.server.sequencer.queues import LOAD
from cookhouse.server.storage.journal import EndSession, Journal

_log = logging.getLogger(__name__)
_MAX_NAMED = 3


class Leftovers:
    """Lives on the event loop."""

    def __init__(self, journal: Journal) -> None:
        self._commit = journal.commit
        self._reader = journal.reader
        self._folders = journal.folders

    async def end_all(self) -> None:
        """End all sessions: their clients are gone."""
        await self._end(await asyncio.to_thread(self._reader.live_owners))

    async def end_missing(self, offered: Collection[str]) -> None:
        """End those that need a base model which is not offered."""
        await self._end({session_id for session_id, _ in await self._missing(offered)})

    async def check_samplers_only(self) -> None:
        """Refuse to lose the models of the journal, which an engine that only samples cannot bring back.

        Raises:
            InputError: there are such.
        """
        models = await asyncio.to_thread(self._reader.live_models)
        if models:
            raise InputError(
                f"the journal has {len(models)} models that train ({listed(models[:_MAX_NAMED])}), and a server that "
                "only samples would lose them; start without --samplers-only until their clients are done (sessions of "
                "clients that are gone end after --session-minutes), or use another --state-dir"
            )

    async def check_base_models(self, offered: Collection[str]) -> None:
        """Refuse to lose what clients have, where only its base model is not offered.

        Raises:
            InputError: some need another base model.
        """
        missing = await self._missing(offered)
        if not missing:
            return
        names = sorted({name for _, name in missing})
        number = len({session_id for session_id, _ in missing})
        options = " ".join(f"-m {name}" for name in names)
        raise InputError(
            f"{number} sessions that have not ended need {listed(names)}, and this server offers "
            f"{listed(sorted(offered))}; start it with {options} as well, or give these sessions up with "
            "--end-sessions missing"
        )

    async def sweep_shared(self, is_alone: Callable[[], bool]) -> None:
        """Put aside bodies and folders that no live session needs, where no other server has written any of them."""
        await self._commit.sweep(is_alone)
        await asyncio.to_thread(self.sweep_folders, is_alone)

    def sweep_folders(self, is_alone: Callable[[], bool] = lambda: True) -> None:
        """Put aside folders that no live session needs, and delete what was never finished. Blocking.

        Raises:
            StorageError: the journal cannot be read.
        """
        found = self._folders.found()
        if not is_alone():
            return
        try:
            self._folders.sweep(self._needed(), found=found)
        except StorageBusyError:
            raise
        except Exception:  # a row that cannot be decoded may be the one that needs a folder
            _log.exception("rows of the journal cannot be read, and no folder is deleted")

    async def _missing(self, offered: Collection[str]) -> Sequence[tuple[str, str]]:
        needed = await asyncio.to_thread(self._reader.live_base_models)
        return [(session_id, name) for session_id, name in needed if not is_offered(name, offered)]

    async def _end(self, session_ids: Collection[str]) -> None:
        """End sessions, and delete their files: a sweep would put them aside."""
        now = time.time()
        before = await asyncio.to_thread(self._readable_needed)
        for session_id in session_ids:
            self._commit.adopt(await asyncio.to_thread(self._reader.segments, session_id))
        await self._commit.commit(*(EndSession(session_id, now, "interrupted", None) for session_id in session_ids))
        await asyncio.to_thread(self._folders.delete, *(before - await asyncio.to_thread(self._readable_needed)))

    def _needed(self) -> set[Path]:
        """Folders of all live sessions. Blocking. Raises StorageError."""
        needed = self._reader.needed_folders(LOAD)
        return {
            *map(self._folders.state, needed.states),
            *map(self._folders.sampler, needed.samplers),
            *map(self._folders.load, needed.loads),
        }

    def _readable_needed(self) -> set[Path]:
        try:
            return self._needed()
        except StorageBusyError:
            raise
        except Exception:  # of a row that cannot be decoded
            _log.exception("rows of the journal cannot be read; files of sessions that are ended are put aside")
            return set()
