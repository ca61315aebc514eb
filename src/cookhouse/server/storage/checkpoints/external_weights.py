"""Downloads of external weights: a link is a signed name of one file of one checkpoint."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from cookhouse.errors import InputError
from cookhouse.server.access.signing import LINK_SECONDS, Signer
from cookhouse.server.refusals import NotFoundError
from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.store.rows import CheckpointRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Routes at which the files of a checkpoint can be fetched until `expires_at`, by file name."""

    routes: Mapping[str, str]
    expires_at: int


class ExternalWeights:
    """Makes links and follows them. Blocking; may be called from any thread."""

    def __init__(self, checkpoints: Checkpoints, secret: bytes | None = None) -> None:
        """For `secret` see `Signer`."""
        self._checkpoints = checkpoints
        self._signer = Signer("ask for a new one with RestClient.get_external_weights_urls()", secret)

    def links(self, row: CheckpointRow) -> Links:
        """Links to every file of a checkpoint, for an hour at most and never longer than it lives.

        Raises:
            InputError: the checkpoint is not one of external weights.
        """
        if row.kind != "external_weights":
            raise InputError(f"{row.path} holds no external weights; save some with save_weights_external()")
        expires_at = int(min(time.time() + LINK_SECONDS, row.expires_at or float("inf")))
        names = sorted(row.sha256 or (path.name for path in self._checkpoints.folder_of(row).iterdir()))
        return Links(
            routes={
                name: f"external_weights/{row.checkpoint_id}/{expires_at}/"
                f"{self._signer.sign(expires_at, row.checkpoint_id, name)}/{quote(name)}"
                for name in names
            },
            expires_at=expires_at,
        )

    def follow(self, checkpoint_id: str, expires_at: int, signature: str, name: str) -> Path:
        """The file that a link leads to.

        Raises:
            NotFoundError: this process did not make the link, or the checkpoint has been deleted.
            GoneError: the link has ended.
            ServiceError: its files lie at another place, and cannot be fetched.
        """
        # Nothing of an unsigned link is used: what is signed are names that this server gave.
        self._signer.check(signature, expires_at, checkpoint_id, name)
        file = self._checkpoints.file_of(checkpoint_id, name)
        if file is None:
            raise NotFoundError("the checkpoint has been deleted")
        return file
