"""A person sees each token with its weight, and whether a renderer can be trusted."""

import json
from pathlib import Path

import pytest

from cookhouse.cli import main

ROW = {
    "messages": [
        {"role": "user", "content": "2 + 2? <script>alert(1)</script>"},
        {"role": "assistant", "content": "4\n"},
    ]
}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(ROW) + "\n")
    return path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["render", *arguments])
    return int(stopped.value.code or 0)


def test_every_token_has_a_line_with_its_weight(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(rows), "--renderer", "qwen3_instruct") == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.startswith(f"{rows}:1, example 1: ")
    assert head.endswith(f"{len(lines)} tokens, 3 trained")
    assert [line.split("\t")[2:] for line in lines[-3:]] == [
        ["1", "'4'"],
        ["1", r"'\n'"],
        ["1", "'<|im_end|>'", "mark"],
    ]
    assert [line.split("\t")[0] for line in lines] == [str(number) for number in range(len(lines))]


def test_a_page_shows_hostile_text_as_text(rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "tokens.html"
    assert run(str(rows), "--page", str(page)) == 0
    assert capsys.readouterr().out.strip() == str(page)
    html = page.read_text()
    assert "<script" not in html
    assert "weight 1.0" in html


def test_a_check_counts_kept_promises(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", "cookhouse/tiny", "--renderer", "qwen3_instruct") == 0
    table = capsys.readouterr().out
    assert [line.split()[0] for line in table.splitlines()[1:6]] == ["prefix", "round", "extension", "stop", "no"]
    assert "thinking" in table


def test_a_broken_promise_is_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "loud.py").write_text(
        "from cookhouse.chat.families.qwen3 import Qwen3InstructRenderer\n\n\n"
        "class Loud(Qwen3InstructRenderer):\n"
        "    def read_response(self, pieces):\n"
        "        message, ended = super().read_response(pieces)\n"
        "        return {**message, 'content': message['content'].upper()}, ended\n"
    )
    assert run("check", "cookhouse/tiny", "--renderer", f"{tmp_path}/loud.py:Loud") == 1
    assert "round trip of system message broken: text 'Be brief.'" not in (out := capsys.readouterr().out)
    assert "round trip of several turns broken: text 'Hello.' is read as 'HELLO.'" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.jsonl"], "nowhere.jsonl does not exist"),
        (["--train-on-what", "all"], "train_on_what"),
        (["--renderer", "qwen4"], "qwen4"),
        (["check", "./nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_one_clear_error(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error
    assert len(error.splitlines()) == 1
