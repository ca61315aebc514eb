"""Rows of a file, by what its name says it holds."""

import glob
import logging
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from cookhouse.data.sources.dialect import DELIMITERS, find_delimiter, to_utf8
from cookhouse.data.sources.lines import CsvRows, LineRows, PromptLines
from cookhouse.data.sources.parts import JoinedRows
from cookhouse.data.sources.store import Rows
from cookhouse.data.sources.tables import ParquetRows, read_array
from cookhouse.errors import InputError

_log = logging.getLogger(__name__)
READABLE = {*DELIMITERS, ".json", ".jsonl", ".ndjson", ".parquet", ".txt"}
"""Suffixes that say how a file is read; one of any other name is read as JSON Lines."""
A_FILE = "give the path of a JSON Lines, JSON, CSV or Parquet file"


def open_file(path: Path, way_out: str = A_FILE) -> BinaryIO:
    """The file's bytes. Raises `InputError` if there is no such file, or it cannot be opened."""
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist; {way_out}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error


def file_rows(path: Path, way_out: str = A_FILE, delimiter: str | None = None) -> Rows:
    """The rows of JSON Lines, of a JSON array, of CSV with a header, of Parquet, or of text of one prompt per line; a
    `.json` may be either of the first two, and a `.txt` that begins with a brace is JSON Lines. `delimiter` of CSV;
    default: the one that is found. Raises `InputError` if the file cannot be read, or is not what its name says.
    """
    suffix = path.suffix.lower()
    try:
        with open_file(path, way_out) as file:
            beginning = file.read(64)
        check_format(path, beginning)
        begins = beginning.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        if suffix == ".json" and begins == b"[":
            return read_array(path)
        if suffix == ".parquet" or beginning.startswith(PARQUET):
            return ParquetRows([path], str(path))
        if suffix in DELIMITERS:
            return CsvRows(partial(open_file, path), str(path), delimiter or _found_delimiter(path, DELIMITERS[suffix]))
        kind = PromptLines if suffix == ".txt" and begins != b"{" else LineRows
        return kind(partial(open_file, path), lambda number: f"{path}:{number}")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error


def _found_delimiter(path: Path, usual: str) -> str:
    with open_file(path) as file:
        found = find_delimiter(file, usual)
    if found != usual:
        _log.info("%s: found the delimiter %r; delimiter= sets another", path, found)
    return found


def pattern_files(path: Path) -> list[Path]:
    """The files, in order of their names, that a path with `*`, `?` or `[` stands for; none where it is a file itself,
    or no pattern.
    """
    if not glob.has_magic(str(path)) or path.exists():
        return []
    anchor = Path(path.anchor)
    return sorted(each for each in anchor.glob(str(path.relative_to(anchor))) if each.is_file())


def pattern_rows(paths: Sequence[Path], delimiter: str | None = None) -> Rows:
    """The rows of several files, one file after the other, as one set. Arguments and errors as of `file_rows`."""
    parts = [file_rows(path, delimiter=delimiter) for path in paths]
    return parts[0] if len(parts) == 1 else JoinedRows(parts)


_UNPACK = "unpack it first"
_TO_UTF8 = "save it as UTF-8"
_AS_ROWS = "save its rows as JSON Lines, CSV or Parquet"
_BEGINNINGS: tuple[tuple[bytes, str, str], ...] = (
    (b"\x1f\x8b", "compressed by gzip", f"{_UNPACK}, as by `gunzip -k FILE`"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", f"{_UNPACK}, as by `unzstd FILE`"),
    (b"\xfd7zXZ\x00", "compressed by xz", f"{_UNPACK}, as by `unxz -k FILE`"),
    (b"BZh91AY&SY", "compressed by bzip2", f"{_UNPACK}, as by `bunzip2 -k FILE`"),
    (b"PK\x03\x04", "a ZIP archive or a workbook of Excel", f"unpack it, or {_AS_ROWS}"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    (b"SQLite format 3\x00", "a database of SQLite", _AS_ROWS),
    (b"ARROW1", "an Arrow (Feather) file", "save it as Parquet"),
    (b"\xff\xff\xff\xff", "an Arrow stream", "save it as Parquet, as by Dataset.to_parquet"),
    (b"Obj\x01", "an Avro file", _AS_ROWS),
    (b"\xff\xfe\x00\x00", "UTF-32", _TO_UTF8),
    (b"\xff\xfe", "UTF-16", _TO_UTF8),
    (b"\xfe\xff", "UTF-16", _TO_UTF8),
)
PARQUET = b"PAR1"


def check_format(path: Path, begins: bytes) -> None:
    """Raises `InputError` for a file whose first bytes are those of a format that is not read."""
    for beginning, name, way_out in _BEGINNINGS:
        if begins.startswith(beginning):
            command = f": {to_utf8(str(path), name)}" if way_out == _TO_UTF8 else ""
            told = way_out.replace("FILE", shlex.quote(str(path)))
            raise InputError(f"{path} is {name}, which is not read; {told}{command}")
    if b"\x00" in begins and not begins.startswith(PARQUET):
        raise InputError(
            f"{path} is no text: there is a zero byte among its first; save it as UTF-8 if it is UTF-16, or {_AS_ROWS}"
        )
