"""Where rows come from: the file of a path, or the function of a name. Both are read as JSON Lines."""

import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, TypeAlias

from cookhouse.data.parsing import parse_each
from cookhouse.data.registry import names_dataset, rows_of
from cookhouse.errors import InputError

_A_FILE = "give the path of a JSON Lines file"


@dataclass(frozen=True, kw_only=True)
class FileSource:
    """A JSON Lines file."""

    path: Path
    way_out: str = _A_FILE
    """What to give in its place where there is no such file."""

    def __str__(self) -> str:
        return str(self.path)

    def open(self) -> BinaryIO:
        """The file's bytes. Raises `InputError` if there is no such file, or it cannot be opened."""
        try:
            return self.path.open("rb")
        except FileNotFoundError as error:
            raise InputError(f"{self} does not exist; {self.way_out}") from error
        except OSError as error:
            raise InputError(f"{self} cannot be read: {error.strerror or error}") from error

    def place(self, number: int) -> str:
        """What messages call a line, counted from 1."""
        return f"{self}:{number}"


@dataclass(frozen=True, kw_only=True)
class NamedSource:
    """A data set by name, written out as JSON Lines. Its function is called once, when it is first opened."""

    name: str

    def __str__(self) -> str:
        return self.name

    def open(self) -> BinaryIO:
        """Its rows, a line for each.

        Raises:
            InputError: there is no such data set, or it gives no rows.
            BadRowsError: some rows cannot be written as JSON, each as `NAME row N: reason`.
        """
        return io.BytesIO(self._lines)

    def place(self, number: int) -> str:
        """What messages call a row, counted from 1."""
        return f"{self} row {number}"

    @cached_property
    def _lines(self) -> bytes:
        return b"".join(parse_each(enumerate(rows_of(self.name), start=1), self._line))

    def _line(self, numbered: tuple[int, object]) -> bytes:
        number, row = numbered
        try:
            # Keys keep their order, which is that of tools in a prompt. Half a surrogate pair has no UTF-8, so that
            # text is escaped: the parser then refuses it as it does in a file.
            return json.dumps(row, default=_as_dict).encode("ascii") + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"{self.place(number)}: not to be written as JSON: {error}; give mappings of text, numbers and lists"
            ) from error


DataSource: TypeAlias = FileSource | NamedSource


def data_source(given: str | os.PathLike[str] | DataSource) -> DataSource:
    """The source that a user means: a file that exists, else a data set if it can be the name of one, else a file that
    is to exist once it is read. A `PathLike` is a file. Nothing is read or imported.
    """
    if not isinstance(given, str):
        return file_source(given)
    if not Path(given).is_file() and names_dataset(given):
        return NamedSource(name=given)
    return FileSource(path=Path(given), way_out=f"{_A_FILE}, or a data set by name, module:NAME or file.py:NAME")


def file_source(given: str | os.PathLike[str] | DataSource) -> DataSource:
    """The source as it is, or the file of a path."""
    return given if isinstance(given, FileSource | NamedSource) else FileSource(path=Path(given))


def _as_dict(value: object) -> dict[object, object]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")
