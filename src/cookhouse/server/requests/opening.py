"""The files of a checkpoint while the engine reads them: checked before, and what is wrong with them told in words."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cookhouse.engine.contract import Url
from cookhouse.errors import CookhouseError
from cookhouse.server.storage.checkpoints.checkpoint import StoredCheckpoint
from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints


@asynccontextmanager
async def opened(checkpoints: Checkpoints, kept: StoredCheckpoint) -> AsyncIterator[Url]:
    """The URL of a checkpoint's files, whose checksums are right. Reads them in a thread.

    Raises:
        InputError: it has been deleted, or cannot be loaded for what is in it.
        ServiceError: its files are damaged, or gone; or cannot be fetched now.
    """
    with checkpoints.held(kept):
        await asyncio.get_running_loop().run_in_executor(checkpoints.readers, checkpoints.verify, kept)
        try:
            yield kept.folder.absolute().as_uri()
        except CookhouseError as error:
            raise await asyncio.to_thread(checkpoints.explained, kept, error) from error
