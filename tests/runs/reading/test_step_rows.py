"""Rows of metrics around a step."""

import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from cookhouse.runs.reading import step_rows
from cookhouse.runs.reading.lines import find_lines
from cookhouse.runs.reading.step_rows import has_step, read_step_rows


def test_the_rows_up_to_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches a page of one step that reads the metrics of a hundred thousand.
    path = tmp_path / "metrics.jsonl"
    rows = [{"step": step, "loss": 1.0} for step in range(1000)] + [{"step": 1000, "test/nll": 2.0}]
    rows.insert(500, {"step": 500, "test/nll": 1.0})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = find_lines(path)
    read = Mock(wraps=step_rows._row)
    monkeypatch.setattr(step_rows, "_row", read)
    found = read_step_rows(path, lines, 500)
    assert [row["step"] for row in found.rows[-3:]] == [499, 500, 500]
    assert found.last_step == 999, "what is held out is no step"
    assert read.call_count < 200
    assert has_step(path, lines, 999)
    assert not has_step(path, lines, 1000)
    assert read_step_rows(path, lines, 5000).rows[-1] == {"step": 1000, "test/nll": 2.0}


@pytest.mark.parametrize(
    "broken", ["nothing", "[1]", '{"loss":1}', "[" * 100_000, '{"step":1,"x":"' + "y" * (1 << 21) + '"}']
)
def test_a_line_that_is_no_row_is_left_out_and_counted(tmp_path: Path, broken: str) -> None:
    # Catches one line of 10 MB, or of another program, that takes the pages of all steps with it.
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{broken}\n{{"step":0,"loss":1}}\n{broken}\n{{"step":1,"loss":2}}\n{broken}\n')
    found = read_step_rows(path, find_lines(path), 1)
    assert ([row["step"] for row in found.rows], found.last_step, found.num_broken) == ([0, 1], 1, 3)
    assert has_step(path, find_lines(path), 1)
    assert not has_step(path, find_lines(path), 2)
    path.unlink()
    assert read_step_rows(path, find_lines(path), 0).rows == []
