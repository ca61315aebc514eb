"""The journal of a service, wired: what writes it, what reads it, and what brings models back from it."""

from pathlib import Path

from cookhouse.server.journal import GroupCommit, JournalReader, Segments
from cookhouse.server.journal.folders import JournalFolders
from cookhouse.server.sequencer.calls import Calls
from cookhouse.server.sequencer.futures import Futures
from cookhouse.server.sequencer.states import States
from cookhouse.server.settings import Settings
from cookhouse.server.store.store import Store

OFF, FILES = "off", "files"


class Journaling:
    def __init__(self, state_dir: Path, store: Store, settings: Settings, calls: Calls, futures: Futures) -> None:
        """Raises InputError: the place for it cannot be used."""
        url = (state_dir / "journal").absolute().as_uri() if settings.journal == FILES else settings.journal
        segments = Segments(url)
        self.commit = GroupCommit(store, segments, patience_seconds=settings.store_patience_seconds)
        self.reader = JournalReader(store, segments)
        self.folders = JournalFolders(state_dir.absolute())
        self.folders.make()
        self.states = States(calls=calls, commit=self.commit, folders=self.folders, futures=futures, settings=settings)
