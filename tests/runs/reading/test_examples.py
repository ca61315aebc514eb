"""Examples of a step as a page reads them: whatever lies in the file, in words or as it was written."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cookhouse.errors import InputError
from cookhouse.runs.reading.examples import MAX_FILE_BYTES, example_steps, read_examples

ROW: dict[str, Any] = {
    "number": 3, "label": "chosen", "num_before": 0, "num_after": 9,
    "tokens": [1, None, 2], "targets": [0, 2, 5], "weights": [0, 1.0, 1.0], "logprobs": [None, -0.5, -1],
}  # fmt: skip


def write(folder: Path, text: str, name: str = "000012.jsonl") -> Path:
    path = folder / "examples" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    soft = {**ROW, "targets": [[1, 2]] * 3, "weights": [[0.5, 0.5]] * 3, "logprobs": [[-1, None]] * 3}
    write(tmp_path, json.dumps(ROW) + "\n" + json.dumps(soft) + "\n")
    first, second = read_examples(tmp_path, 12)
    assert first.model_dump(exclude_none=True) == ROW
    assert first.advantages is None
    assert second.logprobs == [[-1.0, None]] * 3


def test_a_step_without_examples_has_none(tmp_path: Path) -> None:
    assert read_examples(tmp_path, 0) == []
    assert example_steps(tmp_path) == []


def test_steps_are_those_of_files_that_a_run_writes(tmp_path: Path) -> None:
    for name in ("000010.jsonl", "000002.jsonl", "1000000.jsonl", "x.jsonl", "²¹.jsonl", f"{'9' * 200}.jsonl"):
        write(tmp_path, "", name)
    assert example_steps(tmp_path) == [2, 10, 1_000_000]


@pytest.mark.parametrize(
    "line",
    [
        "<script>",
        "[]",
        json.dumps({**ROW, "tokens": [1, 2]}),
        json.dumps({**ROW, "logprobs": [-0.5]}),
        json.dumps({**ROW, "logprobs": [[-0.5]] * 3}),
        json.dumps({**ROW, "logprobs": [-0.5, "<b>", 0]}),
        json.dumps({**ROW, "logprobs": [float("nan")] * 3}),
        json.dumps({**ROW, "tokens": [2**40] * 3}),
        json.dumps({**ROW, "number": -1}),
        json.dumps({**ROW, "label": "x" * 1000}),
        json.dumps({name: value for name, value in ROW.items() if name != "targets"}),
        "[" * 100_000,
        "\x00",
    ],
)
def test_anything_else_is_refused_in_words(line: str, tmp_path: Path) -> None:
    """Catches a page that breaks, or shows half of it, on a file that somebody else wrote."""
    path = write(tmp_path, json.dumps(ROW) + "\n" + line + "\n")
    with pytest.raises(InputError, match=f"{re.escape(str(path))}, line 2, is no example of a step") as caught:
        read_examples(tmp_path, 12)
    assert len(str(caught.value)) < 400 + len(str(path))
    assert "<b>" not in str(caught.value)


def test_a_file_that_no_run_writes_is_not_read_whole(tmp_path: Path) -> None:
    with write(tmp_path, "").open("ab") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(InputError, match="larger than 8,388,608 bytes"):
        read_examples(tmp_path, 12)


def test_a_folder_in_its_place_is_said(tmp_path: Path) -> None:
    (tmp_path / "examples" / "000012.jsonl").mkdir(parents=True)
    with pytest.raises(InputError, match="cannot be read"):
        read_examples(tmp_path, 12)
