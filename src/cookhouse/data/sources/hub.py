"""Data sets of the Hugging Face hub, and of folders laid out as one, through the library `datasets`.

Legend: K blocks.
"""

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from cookhouse.data.sources.arrow import decode_rows
from cookhouse.data.sources.files import READABLE, pattern_rows
from cookhouse.data.sources.parts import JoinedRows
from cookhouse.data.sources.store import HubSplit, RawRow, Rows
from cookhouse.data.sources.tables import ParquetRows
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.extras import install_command

MAX_DOWNLOAD_BYTES = 2 * 2**30
"""Larger sets are streamed from the hub, where their files are Parquet; nothing of them is kept on disk."""
_BLOCK_ROWS = 256
_TIMEOUT_SECONDS = 10.0
_log = logging.getLogger(__name__)


class HubDatasetStore:
    """Sets of the hub. Those that are on disk are taken from there; others are downloaded once their size has been
    said, or streamed.
    """

    synthetic = False

    def __init__(self, mirror: Path | None = None) -> None:
        """`mirror` is a folder with sets at `owner/name` below it; then nothing is asked of the hub."""
        self._mirror = mirror

    def open(self, split: HubSplit) -> Rows:
        """The rows of a split, read from disk as they are asked for.

        Raises:
            InputError: `datasets` is not installed, or there is no such set or split on disk or at the hub.
        """
        place = split.name if self._mirror is None else str(self._mirror / _checked_id(split.name))
        if self._mirror is not None and not Path(place).is_dir():
            raise InputError(
                f"there is no data set {split.name} in {self._mirror}; put it there, as a folder of that name"
            )
        _library(split.name)
        with _answering(split.name) if self._mirror is None and not Path(place).is_dir() else nullcontext():
            parts = [self._open(split, place, config) for config in split.configs]
        return parts[0] if len(parts) == 1 else JoinedRows(parts)

    def _open(self, split: HubSplit, place: str, config: str | None) -> Rows:
        datasets = _library(split.name)
        label = str(split) if config is None else f"{split.name} ({config}, {split.split})"
        with _errors(split, place):
            name = str(Path(place).resolve()) if Path(place).is_dir() else place
            builder = datasets.load_dataset_builder(name, config)
        files: Mapping[str, Sequence[str]] = builder.config.data_files or {}
        # What is known of splits depends on where the set is: in files, or prepared in the cache before.
        known = [str(each) for each in (files or builder.info.splits or ())]
        if known and split.split not in known:
            raise UnknownNameError(f"split of {split.name}", split.split, known)
        chosen = [str(file) for file in files.get(split.split, ())]
        if Path(place).is_dir():
            if all(Path(file).suffix in READABLE for file in chosen):
                return pattern_rows([Path(file) for file in chosen])
            # In a place of its own: `datasets` would take what it prepared before of a folder that has changed since.
            with _errors(split, place):
                builder = datasets.load_dataset_builder(name, config, cache_dir=_cache_of(chosen))
        elif chosen and not (Path(builder.cache_dir) / "dataset_info.json").exists():
            with _errors(split, place):
                num_bytes = _num_bytes([str(file) for each in files.values() for file in each])
            if num_bytes > MAX_DOWNLOAD_BYTES and all(file.endswith(".parquet") for file in chosen):
                _log.warning("%s has %s: it is streamed, and not kept on disk", split.name, _size(num_bytes))
                return _streamed(chosen, label)
            _log.warning("%s is not on disk: downloading %s to %s", split.name, _size(num_bytes), builder.cache_dir)
        with _errors(split, place):
            builder.download_and_prepare()
            return ArrowRows(builder.as_dataset(split=split.split), label)


class ArrowRows:
    """A prepared set of the library `datasets`, mapped from disk."""

    def __init__(self, dataset: Any, name: str) -> None:
        self._dataset, self._name = dataset, name
        self.num_bytes = int(dataset.data.nbytes)
        self.columns: Sequence[str] = list(dataset.column_names)
        starts = range(0, len(dataset), _BLOCK_ROWS)
        self.block_rows = np.array([min(_BLOCK_ROWS, len(dataset) - start) for start in starts], dtype=np.int64)

    def read(self, block: int) -> Sequence[RawRow]:
        start = block * _BLOCK_ROWS
        columns = self._dataset[start : start + _BLOCK_ROWS]
        names = list(columns)
        read = [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        rows = decode_rows(read, self._dataset.features.arrow_schema, has_json_text=False)
        return [
            RawRow(place=f"{self._name} row {number}", content=row) for number, row in enumerate(rows, start=start + 1)
        ]


def _checked_id(name: str) -> str:
    """The id as a path below a mirror: two names, neither of which leads out of it."""
    parts = name.split("/")
    if len(parts) != 2 or not all(part and part not in (".", "..") for part in parts):
        raise InputError(f"{name!r} is no id of a data set; it must be owner/name")
    return name


def _library(name: str) -> ModuleType:
    try:
        import datasets
    except ImportError as error:
        raise InputError(
            f"reading {name} needs the library datasets: {install_command('data')}; or give the path of a "
            "file with the same fields"
        ) from error
    library: ModuleType = datasets
    return library


@contextmanager
def _answering(name: str) -> Iterator[None]:
    """Ask the hub for a set once, with a time limit. Where it cannot be reached, the body finds what is on disk: the
    libraries would ask for each file six times over.
    """
    from datasets import config
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    was_offline = constants.HF_HUB_OFFLINE, config.HF_HUB_OFFLINE
    if not any(was_offline):
        try:
            HfApi(endpoint=config.HF_ENDPOINT).dataset_info(name, timeout=_TIMEOUT_SECONDS)
        except (HfHubHTTPError, HFValidationError):
            pass  # it is there: what it says of the set is reported where that is opened
        except Exception as error:  # transport errors have no common class across versions of the hub's client
            _log.warning("the hub cannot be reached (%s): %s is looked for on disk", error, name)
            constants.HF_HUB_OFFLINE = config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, config.HF_HUB_OFFLINE = was_offline


@contextmanager
def _errors(split: HubSplit, place: str) -> Iterator[None]:
    from datasets import config, exceptions

    try:
        yield
    except (OSError, ValueError, exceptions.DatasetsError) as error:
        cause = str(error).strip().split("\n")[0]
        if Path(place).is_dir():
            raise InputError(f"the folder {place} cannot be read as a data set: {cause}") from error
        raise InputError(
            f"{split.name} is not on disk (looked in {config.HF_DATASETS_CACHE}) and cannot be read from the "
            f"hub: {cause}; check the network and the name, or give the path of a file or folder with the same fields"
        ) from error


def _cache_of(files: Sequence[str]) -> str:
    """Folder in which files of a folder are prepared: another place once one of them has changed."""
    from datasets import config

    states = [(file, Path(file).stat().st_size, Path(file).stat().st_mtime_ns) for file in files]
    return str(Path(config.HF_DATASETS_CACHE) / "cookhouse" / hashlib.sha256(repr(states).encode()).hexdigest()[:16])


def _streamed(files: Sequence[str], name: str) -> Rows:
    from fsspec.core import url_to_fs

    filesystem, _ = url_to_fs(files[0])
    return ParquetRows([filesystem._strip_protocol(file) for file in files], name, filesystem)


def _num_bytes(files: Sequence[str]) -> int:
    from fsspec.core import url_to_fs

    filesystem, _ = url_to_fs(files[0])
    return sum(int(filesystem.size(file) or 0) for file in files)


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:,.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:,.1f} MB"
