"""Dialect of a CSV file: the character between its cells, and its encoding where that is not UTF-8."""

import csv
import io
import shlex
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from cookhouse.errors import InputError

DELIMITERS = {".csv": ",", ".tsv": "\t"}
"""Delimiters that the names of files promise, by suffix."""
NAMED = {"tab": "\t"}
"""Delimiters that a command line cannot hold as they are, by name."""
_CANDIDATES = (",", ";", "\t", "|")
_SAMPLE_BYTES = 2**18
_SAMPLE_RECORDS = 100


def parse_delimiter(text: str) -> str:
    """The delimiter that a setting names. Raises `InputError` if it is none."""
    mark = NAMED.get(text, text)
    if len(mark) != 1 or mark in '"\r\n':
        raise InputError(f"delimiter={text!r} is none; it is one character that is no quote, or tab")
    return mark


def find_delimiter(file: BinaryIO, usual: str) -> str:
    """The delimiter of the first records: `usual` if it gives each of them as many cells as the header, of which there
    are several; else the candidate that does; else the one that gives the header the most cells.

    `csv.Sniffer` goes by the frequency of characters, and takes a letter of the text for the delimiter where cells are
    long.
    """
    content = file.read(_SAMPLE_BYTES)
    sample = content.decode("utf-8-sig", errors="replace")
    widths = {mark: _widths(sample, mark, is_whole=len(content) < _SAMPLE_BYTES) for mark in (usual, *_CANDIDATES)}
    several = [mark for mark, counts in widths.items() if counts and counts[0] > 1]
    even = [mark for mark in several if len({*widths[mark]}) == 1]
    if usual in even or not (found := even or several):
        return usual
    return max(found, key=lambda mark: widths[mark][0])


def _widths(sample: str, delimiter: str, *, is_whole: bool) -> list[int]:
    """Cells of each record; none if the sample is not CSV by this delimiter. Of a longer file those before its end."""
    records = csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter, strict=True)
    found: list[int] = []
    try:
        for cells in islice(records, _SAMPLE_RECORDS):
            found += [len(cells)] if cells else []
    except csv.Error:  # what is wrong with the file is told, with its line, when it is read
        return found if not is_whole and len(found) > 1 else []
    return found


def to_utf8(path: str, encoding: str) -> str:
    """The command that writes a file anew in UTF-8, beside it."""
    old = Path(path)
    new = old.with_name(f"{old.stem}-utf8{old.suffix}")
    return f"iconv -f {encoding} -t UTF-8 {shlex.quote(path)} > {shlex.quote(str(new))}"


def not_utf8(path: str, content: bytes) -> str:
    """Way out for a part of a file that is not UTF-8. Excel saves Windows-1252 in Western Europe,
    which leaves five bytes unused; with one of these it is another encoding.
    """
    try:
        content.decode("cp1252")
    except UnicodeDecodeError:
        return f"save the file as UTF-8; `file {shlex.quote(path)}` guesses its encoding"
    return f"if it is Windows-1252, as Excel saves it: {to_utf8(path, 'WINDOWS-1252')}"
