"""Formats of files that are not read, recognized by how they begin."""

from pathlib import Path

from cookhouse.errors import InputError

_UNPACK = "unpack it first"
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
    (b"\xff\xfe\x00\x00", "UTF-32", "save it as UTF-8, as by `iconv -f UTF-32 -t UTF-8`"),
    (b"\xff\xfe", "UTF-16", "save it as UTF-8, as by `iconv -f UTF-16 -t UTF-8`"),
    (b"\xfe\xff", "UTF-16", "save it as UTF-8, as by `iconv -f UTF-16 -t UTF-8`"),
)
PARQUET = b"PAR1"


def check_format(path: Path, begins: bytes) -> None:
    """Raises `InputError` for a file whose first bytes are those of a format that is not read."""
    for beginning, name, way_out in _BEGINNINGS:
        if begins.startswith(beginning):
            raise InputError(f"{path} is {name}, which is not read; {way_out}")
    if b"\x00" in begins and not begins.startswith(PARQUET):
        raise InputError(
            f"{path} is no text: there is a zero byte among its first; save it as UTF-8 if it is UTF-16, or {_AS_ROWS}"
        )
