"""An open journal: what writes it, what reads it, and the folders that its rows name."""

from pathlib import Path

from cookhouse.server.settings import Settings
from cookhouse.server.storage.journal.folders import JournalFolders
from cookhouse.server.storage.journal.group_commit import GroupCommit
from cookhouse.server.storage.journal.reader import JournalReader
from cookhouse.server.storage.journal.segments import SegmentFiles
from cookhouse.server.storage.store.store import Store

OFF, FILES = "off", "files"


class Journal:
    """Of a server, or of several that share a folder and a store."""

    def __init__(self, folder: Path, store: Store, settings: Settings) -> None:
        """Raises InputError: the place for bodies cannot be used."""
        url = (folder / "journal").absolute().as_uri() if settings.journal == FILES else settings.journal
        segments = SegmentFiles(url)
        self.commit = GroupCommit(store, segments, patience_seconds=settings.store_patience_seconds)
        self.reader = JournalReader(store, segments)
        self.folders = JournalFolders(folder.absolute())
        self.folders.make()
