"""Catches gigabytes of CUDA that nothing speaks of, and a line about torch where none is downloaded."""

import io
import json
from typing import Any

import pytest
from scripts import torch_build
from scripts.torch_build import in_words


def report(**versions: str) -> dict[str, Any]:
    packages = [{"metadata": {"name": name.replace("_", "-"), "version": of}} for name, of in versions.items()]
    return {"version": "1", "install": packages}


@pytest.mark.parametrize(
    ("versions", "begins", "ends"),
    [
        ({"torch": "2.13.0+cpu", "sympy": "1.14.0"}, "torch 2.13.0+cpu comes without CUDA: about 0.2 GB", "on disk"),
        ({"torch": "2.13.0", "nvidia_cublas": "13.1"}, "torch 2.13.0 comes with CUDA: about 2.7 GB", "locally"),
        ({"Torch": "2.13.0", "NVIDIA_cudnn_cu13": "9.2"}, "torch 2.13.0 comes with CUDA", "locally"),
        ({"nvidia_cublas": "13.1"}, "", ""),
        ({}, "", ""),
    ],
)
def test_the_build_is_told_by_what_comes_with_it(versions: dict[str, str], begins: str, ends: str) -> None:
    words = in_words(report(**versions))
    assert words.startswith(begins)
    assert words.endswith(ends)
    assert bool(words) == bool(begins)


def test_of_cuda_the_way_to_the_smaller_build_is_told() -> None:
    words = in_words(report(torch="2.13.0", nvidia_cublas="13.1"))
    assert "make run INSTALLER=uv" in words
    assert "https://pytorch.org/get-started/locally" in words


@pytest.mark.parametrize(("text", "lines"), [("", 0), (json.dumps(report()), 0), (json.dumps(report(torch="2")), 1)])
def test_nothing_is_said_where_pip_could_not_tell(
    text: str, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    torch_build.main()
    assert capsys.readouterr().out.count("\n") == lines
