"""Uploads of adapters: files in PEFT's layout, put to signed links, become a checkpoint in a run of its own.

An upload is this process's alone: after a restart, a client starts it again.
"""

import shutil
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from cookhouse.engine.contract import LoraSpec
from cookhouse.engine.files.manifest import read_spec
from cookhouse.engine.peft_import import import_apart
from cookhouse.errors import InputError
from cookhouse.server.access.signing import LINK_SECONDS, Signer
from cookhouse.server.refusals import NotFoundError
from cookhouse.server.storage.checkpoints.checkpoint import NewCheckpoint
from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.store.private import private_folder
from cookhouse.server.storage.store.rows import CheckpointRow, RunRow, SessionRow
from cookhouse.server.storage.store.store import Store

FILES = ("adapter_config.json", "adapter_model.safetensors")
_MAX_OPEN = 4
"""Of one tenant."""
_WAY_OUT = "start the upload again"


@dataclass(slots=True, kw_only=True)
class Upload:
    upload_id: str
    owner: str
    base_model: str
    """As its client calls it."""
    engine_model: str
    """The same, as the engine calls it."""
    lora: LoraSpec
    project_id: str | None
    expires_at: int
    """Seconds since the epoch."""
    folder: Path
    row: CheckpointRow | None = None
    """What it has become."""
    turn: threading.Lock = field(default_factory=threading.Lock)


class Uploads:
    """May be called from any thread; `finish` blocks for seconds."""

    def __init__(self, checkpoints: Checkpoints, store: Store, folder: Path) -> None:
        """What an earlier process left in the folder is deleted."""
        shutil.rmtree(folder, ignore_errors=True)
        self._checkpoints = checkpoints
        self._store = store
        self._folder = folder
        self._signer = Signer(_WAY_OUT)
        self._uploads: dict[str, Upload] = {}

    def start(
        self, owner: str, *, base_model: str, engine_model: str, lora: LoraSpec, project_id: str | None
    ) -> tuple[Upload, Mapping[str, str]]:
        """A new upload, and the routes to put its files to, by name.

        Raises:
            InputError: the tenant has too many that are not finished.
        """
        self._drop_old()
        num_open = sum(one.owner == owner and one.row is None for one in self._uploads.values())
        if num_open >= _MAX_OPEN:
            raise InputError(f"{num_open} of your uploads are open; finish one, or wait an hour until they expire")
        upload_id = uuid.uuid4().hex
        upload = Upload(
            upload_id=upload_id,
            owner=owner,
            base_model=base_model,
            engine_model=engine_model,
            lora=lora,
            project_id=project_id,
            expires_at=int(time.time()) + LINK_SECONDS,
            folder=self._folder / upload_id,
        )
        private_folder(upload.folder)
        self._uploads[upload_id] = upload
        links = {
            name: f"external_weights_uploads/{upload_id}/{upload.expires_at}/"
            f"{self._signer.sign(upload.expires_at, upload_id, name)}/{name}"
            for name in FILES
        }
        return upload, links

    def target(self, upload_id: str, expires_at: int, signature: str, name: str) -> Path:
        """Where the file that is put to a link belongs.

        Raises:
            NotFoundError: this process did not make the link, or the upload is finished.
            GoneError: the link has ended.
        """
        self._signer.check(signature, expires_at, upload_id, name)
        upload = self._uploads.get(upload_id)
        if upload is None or upload.row is not None:
            raise NotFoundError(f"upload {upload_id} is over; {_WAY_OUT}")
        return upload.folder / name

    def finish(self, owner: str, upload_id: str) -> CheckpointRow:
        """Make an upload a checkpoint; again gives the same one.

        Raises:
            NotFoundError: there is none, or it is another tenant's.
            InputError: a file is missing, or they are no adapter of that base model and form.
            StorageError: the disk is full, or failed otherwise.
        """
        upload = self._uploads.get(upload_id)
        if upload is None or upload.owner != owner:
            raise NotFoundError(f"unknown upload {upload_id!r}: it has expired, or never was here; {_WAY_OUT}")
        with upload.turn:
            if upload.row is None:
                upload.row = self._import(upload)
                shutil.rmtree(upload.folder, ignore_errors=True)
            return upload.row

    def _import(self, upload: Upload) -> CheckpointRow:
        missing = [name for name in FILES if not (upload.folder / name).is_file()]
        if missing:
            raise InputError(f"the upload lacks {' and '.join(missing)}; put each file to its link first")
        session_id, now = uuid.uuid4().hex, time.time()
        new = NewCheckpoint(
            model_id=f"{session_id}:train:0",
            kind="weights",
            name="adapter",
            owner=upload.owner,
            base_model=upload.base_model,
            lora=upload.lora,
            has_optimizer=False,
            ttl_seconds=None,
            overwrite=False,
            user_metadata={},
        )
        row = self._checkpoints.write(new, lambda folder: _write(upload, folder))
        self._store.add_session(
            SessionRow(
                session_id=session_id, owner=row.owner, created_at=now, finished_at=now, project_id=upload.project_id
            )
        )
        self._store.add_run(
            RunRow(
                model_id=row.model_id,
                session_id=session_id,
                owner=row.owner,
                base_model=row.base_model,
                lora=asdict(row.lora_spec),
                created_at=now,
                last_request_at=now,
            )
        )
        return row

    def _drop_old(self) -> None:
        for upload in list(self._uploads.values()):
            if upload.expires_at <= time.time() and not upload.turn.locked():
                del self._uploads[upload.upload_id]
                shutil.rmtree(upload.folder, ignore_errors=True)


def _write(upload: Upload, folder: Path) -> None:
    try:
        import_apart(upload.folder, folder, upload.engine_model)
    except InputError as error:  # without a path of the server's
        raise InputError(str(error).replace(str(upload.folder), "the upload")) from None
    _, found = read_spec(folder)
    if replace(found, seed=upload.lora.seed) != upload.lora:
        raise InputError(
            f"the files hold {found}, and the upload was started for {upload.lora}; give external_weights_upload_start "
            "the LoRA config of the files"
        )
