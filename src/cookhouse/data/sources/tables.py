"""Rows that stand in memory, and those of Parquet files.

Legend: K blocks.
"""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cookhouse.data.sources.arrow import decode_rows
from cookhouse.data.sources.store import RawRow
from cookhouse.errors import InputError
from cookhouse.extras import install_command

MAX_ARRAY_BYTES = 256 * 2**20
"""A JSON array is in memory as a whole while it is read."""


class ListRows:
    """Rows in memory, in one block."""

    columns: Sequence[str] | None = None

    def __init__(self, rows: Sequence[object], name: str, *, num_bytes: int = 0) -> None:
        self._rows, self._name = rows, name
        self.num_bytes = num_bytes
        self.block_rows = np.array([len(rows)], dtype=np.int64)

    def read(self, block: int) -> Sequence[RawRow]:
        assert block == 0
        return [RawRow(place=f"{self._name} row {number}", content=_row(r)) for number, r in enumerate(self._rows, 1)]


def _row(row: object) -> object:
    # None and bytes have a meaning of their own in a raw row.
    return InputError(f"a row must be an object, not {type(row).__name__}") if row is None else row


def read_array(path: Path) -> ListRows:
    """The rows of a JSON array. Raises `InputError` if the file is larger than memory should hold, or is none."""
    num_bytes = path.stat().st_size
    if num_bytes > MAX_ARRAY_BYTES:
        raise InputError(
            f"{path} is a JSON array of {num_bytes:,} bytes, which must be read as a whole, and at most "
            f"{MAX_ARRAY_BYTES:,} are; save it as JSON Lines, a row to a line"
        )
    try:
        rows = json.loads(path.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON that can be read: {error}") from error
    return ListRows(rows, str(path), num_bytes=num_bytes)


class ParquetRows:
    """Parquet: a block is a row group. Local files, or those of any file system that fsspec reads."""

    def __init__(self, paths: Sequence[str | Path], name: str, filesystem: Any = None) -> None:
        """Reads the files' metadata.

        Raises:
            InputError: pyarrow is not installed, or a file is not Parquet.
        """
        try:
            import pyarrow.parquet as parquet
        except ImportError as error:
            raise InputError(
                f"reading {name} needs pyarrow: {install_command('data')}; or save it as JSON Lines"
            ) from error
        self._name, self._lock = name, threading.Lock()
        with _arrow_errors(name):
            self._files = [parquet.ParquetFile(path, filesystem=filesystem) for path in paths]
        self._groups = [(file, group) for file in self._files for group in range(file.num_row_groups)]
        found = [file.metadata.row_group(group) for file, group in self._groups]
        self.block_rows = np.array([group.num_rows for group in found], dtype=np.int64)
        self.num_bytes = sum(group.total_byte_size for group in found)
        self.columns: Sequence[str] = list(self._files[0].schema_arrow.names)
        self._first_K = np.cumsum(self.block_rows) - self.block_rows

    def read(self, block: int) -> Sequence[RawRow]:
        file, group = self._groups[block]
        with self._lock, _arrow_errors(self._name):
            table = file.read_row_group(group)
            rows: Sequence[Mapping[str, object]] = decode_rows(table.to_pylist(), table.schema)
        first = int(self._first_K[block]) + 1
        return [RawRow(place=f"{self._name} row {number}", content=row) for number, row in enumerate(rows, start=first)]


@contextmanager
def _arrow_errors(name: str) -> Iterator[None]:
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{name} cannot be read as Parquet: {error}") from error
