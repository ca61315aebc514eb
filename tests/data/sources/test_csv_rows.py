"""CSV: what counts as a record is what is read as one."""

import io
from pathlib import Path

import pytest

from cookhouse.data import HeldOut, SelectedRows, data_source, num_rows, sampled
from cookhouse.data.sources import lines
from cookhouse.data.sources.lines import CsvRows
from cookhouse.data.sources.store import iter_blocks
from cookhouse.errors import InputError


def rows_of(text: str, delimiter: str = ",") -> CsvRows:
    return CsvRows(lambda: io.BytesIO(text.encode()), "f.csv", delimiter)


def values(rows: CsvRows) -> list[object]:
    return [row.value() for row in iter_blocks(rows)]


@pytest.mark.parametrize("delimiter", [",", "\t"])
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_lone_quotes_are_letters_and_rows_are_counted_as_read(
    monkeypatch: pytest.MonkeyPatch, delimiter: str, ending: str
) -> None:
    """Would catch rows between two lone quotes that are lost, or counted as one."""
    monkeypatch.setattr(lines, "_BLOCK_BYTES", 64)
    cells = [(f'pipe {n} of 5" width' if n in (3, 30) else f"question {n}", f"answer {n}") for n in range(40)]
    rows = rows_of(ending.join(delimiter.join(each) for each in [("a", "b"), *cells]), delimiter)
    assert len(rows.block_rows) > 5
    assert num_rows(rows) == 40
    assert values(rows) == [{"a": first, "b": second} for first, second in cells]
    assert [row.place for row in iter_blocks(rows)] == [f"f.csv row {n}" for n in range(1, 41)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('a,b\n1,2\n"5 pipe,x\n3,4\n', "line 3 is not CSV: a quote is opened and never closed"),
        ('a,b\n1,2\n"Hi" she said,x\n', "line 3 is not CSV"),
        ('a,b\n5" pipe,x\n"big one,y\nnext",z\n', "line 3 can be read in two ways: .*line 2 has a quote that quotes"),
        (
            'a,b\n"5 pipe,x\nq,y\npipe of 5",z\n',
            "line 2 can be read in two ways: its quotes make one record of 3 lines",
        ),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused_with_the_line(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=rf"^f\.csv: {reason}"):
        rows_of(text)


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ('a,b\n"one, two\nthree",x\n', "one, two\nthree"),  # not enough to doubt it
        ('a,b\n"one, x\ntwo, y\nthree, z",x\n"says ""hi"", twice",y\n', "one, x\ntwo, y\nthree, z"),  # quotes well
        ('"a","b"\n"one, x\ntwo, y\nthree, z","x"\n', "one, x\ntwo, y\nthree, z"),
        ('a,b\n5" pipe,x\n"one\n\ntwo",y\n', "one\n\ntwo"),  # a blank line is no record
    ],
)
def test_cells_with_line_breaks_are_read(text: str, cell: str) -> None:
    assert cell in [each for row in values(rows_of(text)) if isinstance(row, dict) for each in row.values()]


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl"])
def test_blank_lines_are_no_rows(tmp_path: Path, name: str) -> None:
    """Would catch 40 rows that were asked for and of which half are none."""
    whole = [f'{{"prompt": "q{n}", "completion": "a"}}' if name == "rows.jsonl" else f"q{n},a" for n in range(100)]
    header = ["prompt,completion"] if name == "rows.csv" else []
    (tmp_path / name).write_text("\n\n\n".join([*header, *whole]) + "\n\n")
    rows = data_source(str(tmp_path / name)).rows
    assert num_rows(rows) == 100
    assert len(list(sampled(rows, 40))) == 40
    assert len(list(iter_blocks(SelectedRows(rows, HeldOut(fraction=0.2, seed=0).indices(num_rows(rows)))))) == 20


def test_a_byte_order_mark_is_no_part_of_a_quoted_name() -> None:
    assert values(rows_of('\ufeff"a","b"\n1,2\n')) == [{"a": "1", "b": "2"}]


def test_the_nameless_index_of_pandas_is_left_out_and_told(caplog: pytest.LogCaptureFixture) -> None:
    rows = rows_of(",a,b\n0,x,y\n1,z,w\n")
    assert (rows.columns, values(rows)) == (["a", "b"], [{"a": "x", "b": "y"}, {"a": "z", "b": "w"}])
    assert "f.csv: its first column has no name, as an index of pandas, and is left out" in caplog.text
    for header in ("a,,b", ",,a"):
        with pytest.raises(InputError, match="has no header"):
            rows_of(f"{header}\n0,x,y\n")
