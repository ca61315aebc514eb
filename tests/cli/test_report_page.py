"""`cookhouse report` over a folder that is a run and one that is not."""

from pathlib import Path

import pytest

from cookhouse.cli import main


def test_the_path_of_the_page_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "train/loss": 1.5}\n')
    with pytest.raises(SystemExit) as exit_info:
        main(["report", str(tmp_path)])
    assert exit_info.value.code == 0
    assert capsys.readouterr().out == f"{tmp_path / 'report.html'}\n"
    assert "train/loss" in (tmp_path / "report.html").read_text()


def test_a_folder_that_is_no_run_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(SystemExit) as exit_info:
        main(["report", str(tmp_path)])
    assert exit_info.value.code == 2
    assert "name the folder of a run" in capsys.readouterr().err
