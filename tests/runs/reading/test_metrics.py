"""metrics.jsonl while it grows, is cut by a resume, is torn, or is no metrics file at all."""

import json
from pathlib import Path
from typing import Any

from cookhouse.runs.reading.metrics import GrowingMetrics, read_rows
from cookhouse.telemetry import cut_metrics


def line(step: int, **metrics: Any) -> str:
    return json.dumps({"step": step, **metrics}) + "\n"


def points(metrics: GrowingMetrics, name: str = "a") -> list[tuple[int, float]]:
    columns = metrics.look()
    return [(point.step, point.value) for point in columns.curve(name, {}).points] if name in columns.names else []


def test_rows_come_once_and_a_torn_one_when_it_is_whole(tmp_path: Path) -> None:
    # Catches a reader that goes on behind half a line, whose row is lost, or that counts rows twice.
    path = tmp_path / "metrics.jsonl"
    growing = GrowingMetrics(path)
    assert points(growing) == []
    path.write_text(line(0, a=1.0) + line(1, a=2.0)[:9])
    assert points(growing) == [(1, 1.0)]
    first = read_rows(path, 0)
    assert [row["step"] for row in first.rows] == [0]
    with path.open("a") as file:
        file.write(line(1, a=2.0)[9:] + line(2, a=3.0))
    assert points(growing) == [(1, 1.0), (2, 2.0), (3, 3.0)]
    second = read_rows(path, first.end)
    assert ([row["step"] for row in second.rows], second.end, second.num_broken) == ([1, 2], second.size, 0)
    assert read_rows(path, second.end).rows == []


def test_a_file_that_a_resume_cut_is_read_anew(tmp_path: Path) -> None:
    # Catches steps of before the resume that stay on the page beside those that came in their place.
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(line(step, a=float(step)) for step in range(4)))
    growing = GrowingMetrics(path)
    assert len(points(growing)) == 4
    old_end = growing.end
    cut_metrics(path, 2)
    with path.open("a") as file:
        file.write(line(2, a=20.0))
    assert points(growing) == [(1, 0.0), (2, 1.0), (3, 20.0)]
    assert [row["step"] for row in read_rows(path, old_end).rows] == [0, 1, 2]
    path.unlink()
    assert points(growing) == []
    assert read_rows(path, 10).rows == []


def test_what_is_no_row_is_counted_and_left_out(tmp_path: Path) -> None:
    # Catches a page that one bad line keeps from being shown, or that reads a line of 3 MB as a row.
    path = tmp_path / "metrics.jsonl"
    bad = ["nonsense", "[1]", '{"step": "x"}', '{"step": -1}', '{"step": 1e400}', '{"a": ' + "[" * 100_000, "\x1b"]
    huge = line(1, text="y" * 3_000_000)
    path.write_text(line(0, a=1.0) + "".join(each + "\n" for each in bad) + huge + line(5, a=10**400, b=True, c=2))
    growing = GrowingMetrics(path)
    assert points(growing) == [(1, 1.0)]
    assert growing.look().curve("a", {}).num_not_finite == 1
    assert growing.look().names == ["a", "c"]
    assert growing.num_broken >= len(bad) + 1
    read, start = [], 0
    while start < path.stat().st_size:
        part = read_rows(path, start)
        read += [row["step"] for row in part.rows]
        start = part.end
    assert read == [0, 5]


def test_at_most_so_many_rows_come_at_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(line(step) for step in range(5)))
    part = read_rows(path, 0, max_rows=2)
    assert [row["step"] for row in part.rows] == [0, 1]
    assert [row["step"] for row in read_rows(path, part.end, max_rows=9).rows] == [2, 3, 4]


def test_another_file_of_the_same_inode_is_read_anew(tmp_path: Path) -> None:
    # Catches a run that was deleted and made again, whose curves go on from those of the one before: file systems give
    # a new file the number of the last one that went.
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(line(step, a=float(step)) for step in range(4)))
    growing = GrowingMetrics(path)
    assert len(points(growing)) == 4
    path.write_text("".join(line(step, a=10.0 + step) for step in range(9)))
    assert points(growing) == [(step + 1, 10.0 + step) for step in range(9)]
