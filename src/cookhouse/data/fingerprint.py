"""Fingerprint of a source, in little space: enough to find later whether, and from where on, it has changed."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from cookhouse.data.sources.source import DataSource, FileSource, data_source
from cookhouse.data.sources.store import RawRow, Rows, iter_blocks, num_rows
from cookhouse.errors import InputError

MAX_WHOLE_BYTES = 256 * 2**20
"""Larger files and sets are not read whole, but at evenly spaced places."""
_MAX_MARKS = 1024
_NUM_SAMPLES = 256
_SAMPLE_BYTES = 64 * 2**10
_TABLES = (".json", ".csv", ".tsv", ".parquet")
_MAX_TABLE_BYTES = 32 * 2**20
_MAX_IMAGES = 16
"""Of a stretch; rows of sets of millions name more than can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Digests of a source's stretches, in order: of all of its lines, or of blocks sampled from it. A set that is not
    one file has a line for each row.
    """

    num_bytes: int
    num_lines: int | None
    """None: the file was sampled."""
    stride: int
    """From the start of one stretch to that of the next: lines, or bytes where the file was sampled."""
    marks: tuple[str, ...]
    num_images: int = 0
    """Files of images that rows name, and of which the marks are as well."""

    def changes_to(self, now: "Fingerprint") -> str | None:
        """Differences in a later fingerprint of the same stride, in words; None if nothing is."""
        if now == self:
            return None
        is_counted = self.num_lines is not None and now.num_lines is not None
        before, after = (self.num_lines, now.num_lines) if is_counted else (self.num_bytes, now.num_bytes)
        unit = "lines" if is_counted else "bytes"
        size = (
            f"it had {before:,} {unit} and has {after:,}" if before != after else f"it has {after:,} {unit} as before"
        )
        if not is_counted and before != after:  # the samples are of other places
            return size
        common = min(len(self.marks), len(now.marks))
        first = next((index for index in range(common) if self.marks[index] != now.marks[index]), common)
        start, end = first * self.stride, (first + 1) * self.stride
        if not is_counted:
            images = ", or in an image that rows there name" if self.num_images else ""
            return f"{size}; the first difference found is after byte {start:,}{images}"
        lines = f"line {end:,}" if self.stride == 1 else f"one of lines {start + 1:,} to {end:,}"
        images = ", or an image that it names" if self.num_images else ""
        return f"{size}; the first that is different is {lines}{images}"


def fingerprint_of(given: str | os.PathLike[str] | DataSource, *, stride: int | None = None) -> Fingerprint:
    """The fingerprint of a file or a source, with the stride of an earlier one to compare it with.

    Raises:
        InputError: it cannot be read.
    """
    source = data_source(given)
    try:
        opened = None if _is_small_table(source) else source.open_file()
        if opened is None:
            rows = source.rows
            return _all_rows(rows, stride) if rows.num_bytes <= MAX_WHOLE_BYTES else _sampled_rows(rows)
        with opened as file:
            num_bytes = file.seek(0, os.SEEK_END)
            file.seek(0)
            return _whole(file, num_bytes, stride) if num_bytes <= MAX_WHOLE_BYTES else _sampled(file, num_bytes)
    except OSError as error:
        raise InputError(f"{source} cannot be read: {error.strerror or error}") from error


def _is_small_table(source: DataSource) -> bool:
    """True if its lines are no rows, which can be read all the same to see which images they name."""
    if not isinstance(source, FileSource) or source.path.suffix.lower() not in _TABLES or not source.path.is_file():
        return False
    return source.path.stat().st_size <= _MAX_TABLE_BYTES


def _whole(file: BinaryIO, num_bytes: int, stride: int | None) -> Fingerprint:
    num_lines = sum(1 for _ in file)
    file.seek(0)
    return _of_lines(file, num_bytes, num_lines, stride)


def _sampled(file: BinaryIO, num_bytes: int) -> Fingerprint:
    last, num_strides = num_bytes - _SAMPLE_BYTES, _NUM_SAMPLES - 1
    marks, num_images = [], 0
    for index in range(_NUM_SAMPLES):
        file.seek(index * last // num_strides)
        sample = file.read(_SAMPLE_BYTES)
        images = _images(sample.split(b"\n")[1:-1])  # the rows at either end are cut
        marks.append(_digest([sample, *images]))
        num_images += len(images)
    return Fingerprint(
        num_bytes=num_bytes, num_lines=None, stride=last // num_strides, marks=tuple(marks), num_images=num_images
    )


def _all_rows(rows: Rows, stride: int | None) -> Fingerprint:
    return _of_lines((_line(row) for row in iter_blocks(rows)), None, num_rows(rows), stride)


def _of_lines(lines: Iterable[bytes], num_bytes: int | None, num_lines: int, stride: int | None) -> Fingerprint:
    """`num_bytes` None: those of the lines."""
    stride = stride or max(-(-num_lines // _MAX_MARKS), 1)
    marks, found, num_images = [], 0, 0
    unread = iter(lines)
    while stretch := list(islice(unread, stride)):
        images = _images(stretch)
        marks.append(_digest([*stretch, *images]))
        found += sum(map(len, stretch))
        num_images += len(images)
    return Fingerprint(
        num_bytes=found if num_bytes is None else num_bytes,
        num_lines=num_lines,
        stride=stride,
        marks=tuple(marks),
        num_images=num_images,
    )


def _sampled_rows(rows: Rows) -> Fingerprint:
    last, num_strides = len(rows.block_rows) - 1, _NUM_SAMPLES - 1
    blocks = dict.fromkeys(index * last // num_strides for index in range(_NUM_SAMPLES))
    marks, num_images = [], 0
    for block in blocks:
        lines = [_line(row) for row in rows.read(block)]
        images = _images(lines)
        marks.append(_digest([*lines, *images]))
        num_images += len(images)
    stride = rows.num_bytes // max(len(marks) - 1, 1)
    return Fingerprint(
        num_bytes=rows.num_bytes, num_lines=None, stride=stride, marks=tuple(marks), num_images=num_images
    )


def _line(row: RawRow) -> bytes:
    if isinstance(row.content, bytes):
        return row.content
    return json.dumps(row.content, default=str, sort_keys=True).encode("ascii") + b"\n"


def _images(lines: Sequence[bytes]) -> list[bytes]:
    """Digests of the first files of images that rows name."""
    rows = (_row_of(line) for line in lines if b'"image' in line)
    files = (file for row in rows for file in _image_files(row))
    return [_image(Path(file)) for file in islice(files, _MAX_IMAGES)]


def _row_of(line: bytes | str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):  # a bad row, which is named where it is read
        return None


def _image_files(value: object) -> Iterator[str]:
    """The paths in the image parts of a row, also where a cell has messages as JSON."""
    if isinstance(value, str):
        value = _row_of(value) if value[:1] in ("[", "{") and '"image' in value else None
    if isinstance(value, Mapping):
        kind = value.get("type")
        image = value.get(kind) if kind in ("image", "image_url") else None
        if isinstance(image, Mapping):
            image = image.get("url" if kind == "image_url" else "path")
        if isinstance(image, str) and not image.startswith("data:"):
            yield image
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _image_files(each)


def _image(path: Path) -> bytes:
    """Of its size, its beginning and its end; one that cannot be read is refused where it is rendered."""
    try:
        if not path.is_file():  # a pipe or a terminal would be waited for
            return b"-"
        with path.open("rb") as file:
            num_bytes = file.seek(0, os.SEEK_END)
            file.seek(0)
            first = file.read(_SAMPLE_BYTES)
            file.seek(max(num_bytes - _SAMPLE_BYTES, 0))
            return hashlib.sha256(b"%d\n" % num_bytes + first + file.read(_SAMPLE_BYTES)).digest()
    except (OSError, ValueError):
        return b"-"


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]
