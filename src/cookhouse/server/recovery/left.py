"""Sessions that an earlier process left, looked at before any of them is brought back."""

import asyncio
import logging
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from cookhouse.errors import InputError
from cookhouse.naming import listed
from cookhouse.server.recovery.journaled import needed_folders
from cookhouse.server.refusals import StorageBusyError
from cookhouse.server.requests.base_models import is_offered
from cookhouse.server.storage.journal import EndSession, GroupCommit, JournalReader
from cookhouse.server.storage.journal.folders import JournalFolders

_log = logging.getLogger(__name__)
_MAX_NAMED = 3


class LeftSessions:
    """Of a server that shares none. Lives on the event loop."""

    def __init__(self, reader: JournalReader, commit: GroupCommit, folders: JournalFolders) -> None:
        self._reader = reader
        self._commit = commit
        self._folders = folders

    async def end(self) -> None:
        """End all of them: their clients are gone."""
        await self._end(await asyncio.to_thread(self._reader.live_owners))

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
        """Refuse to tell clients that what they have is gone, where only its base model is not offered.

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

    async def end_missing(self, offered: Collection[str]) -> None:
        """End those that need a base model which is not offered."""
        await self._end({session_id for session_id, _ in await self._missing(offered)})

    async def _missing(self, offered: Collection[str]) -> Sequence[tuple[str, str]]:
        needed = await asyncio.to_thread(self._reader.live_base_models)
        return [(session_id, name) for session_id, name in needed if not is_offered(name, offered)]

    async def _end(self, session_ids: Collection[str]) -> None:
        """End sessions, and delete their files: a sweep would put them aside."""
        now = time.time()
        before = await asyncio.to_thread(self._needed)
        for session_id in session_ids:
            self._commit.adopt(await asyncio.to_thread(self._reader.segments, session_id))
        await self._commit.commit(*(EndSession(session_id, now, "interrupted", None) for session_id in session_ids))
        await asyncio.to_thread(self._folders.delete, *(before - await asyncio.to_thread(self._needed)))

    def _needed(self) -> set[Path]:
        try:
            return set(needed_folders(self._reader, self._folders))
        except StorageBusyError:
            raise
        except Exception:  # of a row that cannot be decoded
            _log.exception("rows of the journal cannot be read; files of sessions that are ended are put aside")
            return set()
