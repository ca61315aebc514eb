"""A source of rows: a file, a data set by name, or one of the hub or of a folder."""

import io
import json
import os
import re
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

from cookhouse.data.parsing import BadRows
from cookhouse.data.sources.columns import Columns, renamed
from cookhouse.data.sources.dialect import DELIMITERS
from cookhouse.data.sources.files import A_FILE, READABLE, file_rows, open_file, pattern_files, pattern_rows
from cookhouse.data.sources.given import GivenRows, check_is_here
from cookhouse.data.sources.hub import HubDatasetStore
from cookhouse.data.sources.known import KnownSet
from cookhouse.data.sources.lines import LineRows
from cookhouse.data.sources.parts import ConvertedRows, HeldOut, SelectedRows, first_rows
from cookhouse.data.sources.registry import DATASETS, RowsFunction, names_dataset, rows_of
from cookhouse.data.sources.speakers import MessageRows, grouped
from cookhouse.data.sources.store import DatasetStore, HubSplit, Rows, iter_blocks, num_rows
from cookhouse.data.sources.tables import ListRows
from cookhouse.data.values import as_json
from cookhouse.errors import InputError
from cookhouse.naming import names_in

_OTHERWISE = (
    f"{A_FILE}, a folder or hub id such as HuggingFaceH4/no_robots, or a data set by name, module:NAME or file.py:NAME"
)
_FILE_SUFFIXES = {*READABLE, ".py"}
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_MAX_MEMORY_BYTES = 32 * 2**20
"""Rows of a function that take more, written out, wait in a temporary file."""

Part: TypeAlias = Literal["train", "test"]


@dataclass(frozen=True, kw_only=True)
class FileSource:
    """A file of JSON Lines, a JSON array, CSV with a header, Parquet, or text of one prompt per line; or, by a pattern
    such as `train-*.parquet`, several that are one set.
    """

    path: Path
    way_out: str = A_FILE
    """What to give in its place where there is no such file."""
    limit: int | None = None
    """Rows that are read, from the first on; None: all of them."""
    columns: Columns = ()
    """Fields of ours that its rows have by other names."""
    messages: MessageRows | None = None
    """Of rows that are a message each; None: each is whole."""
    delimiter: str | None = None
    """Between the cells of CSV; None: it is found."""

    def __str__(self) -> str:
        return str(self.path)

    @property
    def is_csv(self) -> bool:
        """True for files of CSV."""
        return self.path.suffix.lower() in DELIMITERS

    def open_file(self) -> BinaryIO | None:
        """The file's bytes, where all rows are read. Raises `InputError` if it is not there, or cannot be opened."""
        if self.limit is not None or pattern_files(self.path):
            return None
        return open_file(self.path, self.way_out)

    @cached_property
    def rows(self) -> Rows:
        """Its rows. Raises `InputError` if it cannot be read, or is not what its name says."""
        parts = pattern_files(self.path)
        mark = self.delimiter
        rows = pattern_rows(parts, mark) if parts else file_rows(self.path, self.way_out, mark)
        return _shaped(rows, self)


@dataclass(frozen=True, kw_only=True)
class NamedSource:
    """A data set by name: one that people know, from the store, or the user's own function, which is called once, when
    its rows are first asked for, and whose rows are written out as JSON Lines. Rows given from Python are read as those
    of a function are.
    """

    name: str
    part: Part = "train"
    """Of a set that people know: what is trained on, or what is held out."""
    store: DatasetStore | None = None
    make: RowsFunction | None = None
    """Of rows given from Python; their name only says what they are."""
    limit: int | None = None
    """Rows that are read, from the first on; a function is asked for no more. None: all of them."""
    columns: Columns = ()
    """Fields of ours that its rows have by other names; a set that people know has them by ours."""
    messages: MessageRows | None = None
    """As of `FileSource`."""

    def __str__(self) -> str:
        return self.name if self.part == "train" else f"{self.name} ({self.part})"

    def open_file(self) -> BinaryIO | None:
        """The rows of a function, a line for each. Raises as `rows` does; None for a set that people know."""
        if self.known is not None:
            return None
        content = self._written
        return content.open("rb") if isinstance(content, Path) else io.BytesIO(content)

    @cached_property
    def known(self) -> KnownSet | None:
        """The set that people know, if it is one. Raises as `OpenSet.find`."""
        found = self.make or DATASETS.find(self.name)
        return found if isinstance(found, KnownSet) else None

    @cached_property
    def rows(self) -> Rows:
        """Its rows.

        Raises:
            InputError: there is no such data set, or it gives no rows.
            BadRowsError: some rows cannot be written as JSON, each as `NAME row N: reason`.
        """
        if self.known is not None:
            return first_rows(_known_rows(self, self.known), self.limit)
        content = self._written
        opened = (lambda: content.open("rb")) if isinstance(content, Path) else (lambda: io.BytesIO(content))
        return _shaped(LineRows(opened, self._place), self)

    @cached_property
    def _written(self) -> bytes | Path:
        make = self.make or DATASETS.find(self.name)
        assert not isinstance(make, KnownSet)
        with tempfile.SpooledTemporaryFile(max_size=_MAX_MEMORY_BYTES) as spool:
            for line in self._lines(make):
                spool.write(line)
            if spool.tell() <= _MAX_MEMORY_BYTES:
                spool.seek(0)
                return spool.read()
            spool.seek(0)
            return _kept_with(self, spool)

    def _lines(self, make: RowsFunction) -> Iterator[bytes]:
        bad = BadRows()
        limit = self.limit if self.messages is None else None  # a limit is of conversations
        for number, row in enumerate(islice(rows_of(self.name, make), limit), start=1):
            try:
                yield self._line(number, row)
            except InputError as error:
                bad.add(error)
        bad.check()

    def _line(self, number: int, row: object) -> bytes:
        try:
            # Keys keep their order, which is that of tools in a prompt. Half a surrogate pair has no UTF-8, so that
            # text is escaped: the parser then refuses it as it does in a file.
            return json.dumps(row, default=as_json).encode("ascii") + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"{self._place(number)}: not to be written as JSON: {error}; give mappings of text, numbers and lists"
            ) from error

    def _place(self, number: int) -> str:
        return f"{self} row {number}"


@dataclass(frozen=True, kw_only=True)
class HubSource:
    """A split of a data set on the hub, or in a folder laid out as one."""

    split: HubSplit
    store: DatasetStore | None = None
    limit: int | None = None
    """Rows that are read, from the first on; None: all of them."""
    columns: Columns = ()
    """Fields of ours that its rows have by other names."""
    messages: MessageRows | None = None
    """As of `FileSource`."""

    def __str__(self) -> str:
        return str(self.split)

    def open_file(self) -> None:
        """It is not one file."""

    @cached_property
    def rows(self) -> Rows:
        """Its rows. Raises as `DatasetStore.open`."""
        return _shaped((self.store or HubDatasetStore()).open(self.split), self)


DataSource: TypeAlias = FileSource | NamedSource | HubSource


def _shaped(rows: Rows, source: DataSource) -> Rows:
    """The first rows of a source by our names; conversations where its rows are a message each."""
    if source.messages is None:
        return renamed(first_rows(rows, source.limit), source.columns, str(source))
    return first_rows(grouped(renamed(rows, source.columns, str(source)), source.messages, str(source)), source.limit)


def data_source(
    given: str | os.PathLike[str] | DataSource,
    *,
    limit: int | None = None,
    columns: Columns = (),
    messages: MessageRows | None = None,
    delimiter: str | None = None,
) -> DataSource:
    """The source that a user means: a file that exists, else a data set by its name, else a folder or a hub id, either
    with `#SPLIT` or `#CONFIG/SPLIT` behind it, else a file that is to exist once it is read. A `PathLike` is a file;
    `GivenRows` carry theirs. Nothing is read or imported. `limit`: so many rows of it will be, from the first on.
    `columns`: what they call our fields. `messages`: they are a message each. `delimiter`: of CSV; default: found.

    Raises:
        InputError: the text is what a run recorded of rows given from Python.
    """
    source = _meant(given)
    if limit is not None or columns or messages is not None:
        source = replace(source, limit=limit, columns=columns, messages=messages)
    return replace(source, delimiter=delimiter) if isinstance(source, FileSource) and delimiter else source


def _meant(given: str | os.PathLike[str] | DataSource) -> DataSource:
    if isinstance(given, FileSource | NamedSource | HubSource):
        return given
    if not isinstance(given, str):
        return FileSource(path=Path(given))
    if isinstance(given, GivenRows):
        return NamedSource(name=str(given), make=given.make)
    is_path = Path(given).is_file() or (":" in given and Path(given).exists())
    if not is_path and names_dataset(given):
        return NamedSource(name=given)
    check_is_here(given)
    name, _, part = (given, "", "") if Path(given).exists() else given.partition("#")
    is_hub_id = _HUB_ID.fullmatch(name) is not None and Path(name).suffix.lower() not in _FILE_SUFFIXES
    if not Path(given).is_file() and (Path(name).is_dir() or is_hub_id):
        config, _, split = part.rpartition("/")
        return HubSource(split=HubSplit(name=name, split=split or "train", configs=(config or None,)))
    return FileSource(path=Path(given), way_out=_OTHERWISE)


def data_sources(
    text: str,
    *,
    limit: int | None = None,
    columns: Columns = (),
    messages: MessageRows | None = None,
    delimiter: str | None = None,
    also: Mapping[str, DataSource] | None = None,
) -> list[DataSource]:
    """The sources of a text that has several separated by commas; a file that exists is one, whatever its name. `limit`
    is of each, as in `data_source`, and so are the others, but of `also`, which are what further names stand for.
    """
    is_one = isinstance(text, GivenRows) or Path(text).is_file()
    named = also or {}
    return [
        data_source(named[name], limit=limit)
        if name in named
        else data_source(name, limit=limit, columns=columns, messages=messages, delimiter=delimiter)
        for name in ([text] if is_one else names_in(text))
    ]


def from_store(source: DataSource, store: DatasetStore | None) -> DataSource:
    """The source as a store has it; one that needs none as it is."""
    return source if store is None or isinstance(source, FileSource) else replace(source, store=store)


def held_out_source(source: DataSource) -> NamedSource | None:
    """Held-out part of a known data set; None where nothing is."""
    if not isinstance(source, NamedSource) or source.name not in DATASETS.names():
        return None
    has_test = source.known is not None and source.known.test is not None
    return replace(source, part="test", limit=None) if has_test else None


def _known_rows(source: NamedSource, known: KnownSet) -> Rows:
    store = source.store or HubDatasetStore()
    if source.part == "train" or isinstance(known.test, HeldOut):
        rows = store.open(known.train)
        held_out = known.test if isinstance(known.test, HeldOut) else None
    else:
        assert known.test is not None
        rows, held_out = store.open(known.test), known.test_rows
    if store.synthetic:
        return rows
    if known.gather is not None:
        return ListRows(known.gather([_mapping(row.value()) for row in iter_blocks(rows)]), str(source))
    if held_out is not None:
        is_train = source.part == "train"
        rows = SelectedRows(rows, held_out.indices(num_rows(rows)), without=is_train)
    return rows if known.convert is None else ConvertedRows(rows, known.convert)


def _mapping(row: object) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        raise InputError(f"a row must be an object, not {type(row).__name__}")
    return row


def _kept_with(owner: object, content: Any) -> Path:
    """The content in a temporary file that goes when its owner does."""
    with tempfile.NamedTemporaryFile(prefix="cookhouse-rows-", delete=False) as file:
        while piece := content.read(2**20):
            file.write(piece)
    path = Path(file.name)
    weakref.finalize(owner, path.unlink, missing_ok=True)
    return path
