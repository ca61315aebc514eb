"""Files as other tools write them: read, or named with the way out."""

import bz2
import gzip
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from cookhouse.data import data_source, fingerprint_of, num_rows, read_conversations
from cookhouse.errors import InputError

LINE = json.dumps({"prompt": "q", "completion": "a"}) + "\n"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        (
            "rows.jsonl.gz",
            gzip.compress(LINE.encode(), mtime=0),
            "is compressed by gzip, which is not read; unpack it first",
        ),
        ("rows.jsonl", bz2.compress(LINE.encode()), "is compressed by bzip2"),
        ("rows.jsonl", LINE.encode("utf-16"), "is UTF-16, which is not read; save it as UTF-8: iconv -f UTF-16"),
        ("rows.csv", "a,b\n1,2\n".encode("utf-16-be"), "is no text: .* save it as UTF-8 if it is UTF-16"),
        ("rows.arrow", b"\xff\xff\xff\xff\x00", "is an Arrow stream, which is not read; save it as Parquet"),
        ("rows.xlsx", b"PK\x03\x04\x00", "is a ZIP archive or a workbook of Excel"),
    ],
)
def test_a_format_that_is_not_read_is_named_with_the_way_out(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=reason):
        read_conversations(tmp_path / name)


def test_a_pattern_is_one_set_of_several_files(tmp_path: Path) -> None:
    for part in (2, 1):
        (tmp_path / f"train-{part}.jsonl").write_text(LINE.replace("q", f"q{part}") * part)
    pattern = str(tmp_path / "train-*.jsonl")
    assert [c.messages[0]["content"] for c in read_conversations(pattern)] == ["q1", "q2", "q2"]
    assert num_rows(data_source(pattern, limit=2).rows) == 2
    before = fingerprint_of(pattern)
    (tmp_path / "train-1.jsonl").write_text(LINE)
    assert before.changes_to(fingerprint_of(pattern, stride=before.stride)) is not None
    with pytest.raises(InputError, match=r"test-\*\.jsonl does not exist"):
        read_conversations(str(tmp_path / "test-*.jsonl"))
    (tmp_path / "odd[1].jsonl").write_text(LINE)
    assert len(read_conversations(str(tmp_path / "odd[1].jsonl"))) == 1


def test_dates_decimals_maps_and_json_of_parquet_are_as_in_json_lines(tmp_path: Path) -> None:
    """Would catch a `TypeError` without a row, and pairs of a map that are taken for a list."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "day": pa.array([date(2026, 1, 2), None]),
            "at": pa.array([[datetime(2026, 1, 2, 3, tzinfo=UTC)], []]),
            "paid": pa.array([{"sum": Decimal("3.50")}, None], pa.struct([("sum", pa.decimal128(6, 2))])),
            "named": pa.array([[("a", Decimal(1))], None], pa.map_(pa.string(), pa.decimal128(4, 0))),
            "tools": pa.array(['[{"b":1}]', None], pa.json_()),
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    first, second = (row.content for row in data_source(str(tmp_path / "rows.parquet")).rows.read(0))
    assert first == {
        "day": "2026-01-02",
        "at": ["2026-01-02T03:00:00+00:00"],
        "paid": {"sum": 3.5},
        "named": {"a": 1},
        "tools": [{"b": 1}],
    }
    assert second == {"day": None, "at": [], "paid": None, "named": None, "tools": None}
    twice = pa.table({"m": pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))})
    pq.write_table(twice, tmp_path / "map.parquet")
    with pytest.raises(InputError, match="has the same key twice"):
        data_source(str(tmp_path / "map.parquet")).rows.read(0)
