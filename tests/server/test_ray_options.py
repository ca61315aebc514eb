"""How a server is asked for workers on Ray."""

from pathlib import Path

import pytest

from cookhouse.server.__main__ import main


def test_what_workers_take_of_nodes_is_refused_without_ray(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Would catch an operator who believes that an engine keeps to two cores."""
    assert main(["--state-dir", str(tmp_path), "--worker-cpus", "2"]) == 2
    assert capsys.readouterr().err.strip().endswith("give --ray as well")


@pytest.mark.parametrize("text", ["-1", "1.5", "nan", "inf"])
def test_parts_of_several_gpus_are_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--state-dir", str(tmp_path), "--ray", f"--worker-gpus={text}"])
    assert "neither a part of one nor a whole number" in capsys.readouterr().err
