"""How a server is asked for workers on Ray."""

from pathlib import Path
from typing import Any, NoReturn

import pytest

from cookhouse.errors import InputError
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


def test_gpus_for_an_engine_on_the_cpu_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--state-dir", str(tmp_path), "--ray", "--device", "cpu", "--worker-gpus", "1"]
    assert main(words) == 2
    assert "--worker-gpus 1 reserves GPUs, and --device cpu computes on none" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "num_gpus"), [(["--device", "cpu"], 0.0), ([], None)])
def test_an_engine_on_the_cpu_reserves_no_gpu(
    words: list[str], num_gpus: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a GPU that is kept from others for an engine that does not use it."""
    monkeypatch.delenv("COOKHOUSE_DEVICE", raising=False)
    asked: list[Any] = []

    def ask(*_: object, **needs: Any) -> NoReturn:
        asked.append(needs["num_gpus"])
        raise InputError("enough")

    monkeypatch.setattr("cookhouse.server.__main__.RayWorkers", ask)
    assert main(["--state-dir", str(tmp_path), "--ray", *words]) == 2
    assert asked == [num_gpus]
