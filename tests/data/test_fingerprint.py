"""Fingerprints of data files: what they notice, and what they say of it."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from cookhouse.data import Fingerprint, GivenRows, data_source, fingerprint, fingerprint_of
from cookhouse.errors import InputError

LINES = [f"row {number}\n" for number in range(1, 81)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.jsonl"


def changes(path: Path, before: str, after: str) -> str | None:
    path.write_text(before)
    recorded = fingerprint_of(path)
    path.write_text(after)
    return recorded.changes_to(fingerprint_of(path, stride=recorded.stride))


def test_the_same_content_has_the_same_fingerprint(path: Path) -> None:
    assert changes(path, "".join(LINES), "".join(LINES)) is None
    assert changes(path, "", "") is None


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (LINES[:40], "it had 80 lines and has 40; the first that is different is line 41"),
        ([*LINES, "more"], "it had 80 lines and has 81; the first that is different is line 81"),
        ([*LINES[:5], "other\n", *LINES[6:]], "it has 80 lines as before; the first that is different is line 6"),
        (
            [LINES[0], LINES[2], LINES[1], *LINES[3:]],
            "it has 80 lines as before; the first that is different is line 2",
        ),
        ([*LINES[:79], "row 80"], "it has 80 lines as before; the first that is different is line 80"),
        ([], "it had 80 lines and has 0; the first that is different is line 1"),
    ],
)
def test_what_changed_is_said(path: Path, after: list[str], said: str) -> None:
    # Catches a resume on data of another size, order or content.
    assert changes(path, "".join(LINES), "".join(after)) == said


def test_a_file_of_many_lines_has_a_mark_for_several(path: Path) -> None:
    lines = [f"{number}\n" for number in range(3000)]
    path.write_text("".join(lines))
    assert (fingerprint_of(path).stride, len(fingerprint_of(path).marks)) == (3, 1000)
    assert changes(path, "".join(lines), "".join([*lines[:100], "x\n", *lines[101:]])) == (
        "it has 3,000 lines as before; the first that is different is one of lines 100 to 102"
    )
    assert changes(path, "".join(lines), "".join(lines * 2)) == (
        "it had 3,000 lines and has 6,000; the first that is different is one of lines 3,001 to 3,003"
    )


def test_a_large_file_is_sampled_from_its_first_to_its_last_byte(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cookhouse.data.fingerprint.MAX_WHOLE_BYTES", 2**20)
    content = bytearray(range(256)) * (40 * 2**12)  # 40 MiB
    path.write_bytes(content)
    before = fingerprint_of(path)
    assert before.num_lines is None
    for place, said in ((0, "after byte 0"), (len(content) - 1, "after byte 41,877,")):
        path.write_bytes(content[:place] + b"?" + content[place + 1 :])
        told = before.changes_to(fingerprint_of(path, stride=before.stride))
        assert told is not None
        assert told.startswith("it has 41,943,040 bytes as before; the first difference found is " + said)
    path.write_bytes(content + b"?")
    told = before.changes_to(fingerprint_of(path, stride=before.stride))
    assert told == "it had 41,943,040 bytes and has 41,943,041"
    path.write_bytes(b"small")
    assert before.changes_to(fingerprint_of(path)) == "it had 41,943,040 bytes and has 5"


def test_a_file_that_is_gone_is_named(path: Path) -> None:
    with pytest.raises(InputError, match=r"rows\.jsonl does not exist"):
        fingerprint_of(path)


def test_it_is_small_however_long_the_file(path: Path) -> None:
    path.write_text("\n" * 100_000)
    found = fingerprint_of(path)
    assert isinstance(found, Fingerprint)
    assert len(found.marks) <= 1024


def seen(image: Any, kind: str = "image") -> dict[str, Any]:
    asked = [{"type": "text", "text": "What is it?"}, {"type": kind, kind: image}]
    return {
        "messages": [
            {"role": "user", "content": asked},
            {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]},
        ]
    }


@pytest.mark.parametrize("form", ["lines", "sampled lines", "array", "csv", "parquet", "given", "limited"])
def test_an_image_that_rows_name_is_part_of_the_data(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Catches a resume on other pictures under the names of those that were trained on."""
    images = [tmp_path / f"{number}.png" for number in range(3)]
    for image in images:
        image.write_bytes(b"png of " + image.name.encode())
    rows = [seen(str(images[0])), seen({"url": str(images[1])}, "image_url"), seen({"path": str(images[2])})]
    rows = [*rows, seen("data:image/png;base64,AAAA"), seen(str(tmp_path / "missing.png"))]
    source: Any = path
    if form == "array":
        source = tmp_path / "rows.json"
        source.write_text(json.dumps(rows, indent=1))
    elif form == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        source, rows = tmp_path / "rows.parquet", rows[:1]
        parquet.write_table(pyarrow.Table.from_pylist(rows), source)
    elif form == "csv":
        source = tmp_path / "rows.csv"
        cells = [json.dumps(row["messages"]).replace('"', '""') for row in rows]
        source.write_text("messages\n" + "".join(f'"{cell}"\n' for cell in cells))
    elif form == "given":
        source = GivenRows.of(rows)
    else:
        path.write_text(
            "".join(json.dumps(row) + "\n" for row in ([rows[0]] * 1000 if form == "sampled lines" else rows))
        )
        source = data_source(path, limit=1 if form == "limited" else None)
    if form == "sampled lines":
        monkeypatch.setattr(fingerprint, "MAX_WHOLE_BYTES", 0)
    recorded = fingerprint_of(source)
    assert recorded.changes_to(fingerprint_of(source, stride=recorded.stride)) is None
    changed = images[2 if form in ("lines", "array", "csv", "given") else 0]
    changed.write_bytes(changed.read_bytes().replace(b"png", b"PNG"))
    said = recorded.changes_to(fingerprint_of(source, stride=recorded.stride))
    assert said is not None
    if form == "sampled lines":
        assert said.endswith("the first difference found is after byte 0, or in an image that rows there name")
    else:
        line = 3 if changed == images[2] else 1
        assert said.endswith(f"lines as before; the first that is different is line {line}, or an image that it names")


def test_text_has_the_fingerprint_that_it_had_before_images_were_read(path: Path) -> None:
    path.write_text('{"text": "an \\"image\\" of words"}\n{"type": "image"}\nnot json "image"\n')
    found = fingerprint_of(path)
    assert found.num_images == 0
    assert found.marks[1] == "87dbf05f0ce99c79"


def test_a_pipe_that_a_row_names_is_not_waited_for(path: Path) -> None:
    # Catches a run over somebody else's rows that never begins.
    pipe = path.with_name("pipe.png")
    os.mkfifo(pipe)
    path.write_text(f"{json.dumps(seen(str(pipe)))}\n")
    found: list[Fingerprint] = []
    reading = threading.Thread(target=lambda: found.append(fingerprint_of(path)), daemon=True)
    reading.start()
    reading.join(timeout=20)
    assert [(each.num_lines, each.num_images) for each in found] == [(1, 1)]
