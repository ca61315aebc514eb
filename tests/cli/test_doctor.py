"""`cookhouse doctor`: what it says of machines other than this one."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from cookhouse.cli import doctor
from cookhouse.cli.main import app
from cookhouse.engine.kernels import cpu
from cookhouse.extras import Extra


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL", "COOKHOUSE_DEVICE", "COOKHOUSE_PRECISION"):
        monkeypatch.delenv(name, raising=False)


def said(code: int = 0) -> dict[str, str]:
    """What stands behind each name, with the way out."""
    done = CliRunner().invoke(app, ["doctor"], catch_exceptions=False)
    assert done.exit_code == code, done.output
    found: dict[str, str] = {}
    name = ""
    for line in done.output.splitlines():
        name = line[:14].strip() or name
        found[name] = f"{found.get(name, '')} {line[14:]}".strip()
    return found


def test_this_machine_is_described_and_can_train() -> None:
    found = said()
    about = [
        "cookhouse",
        "packages",
        "processor",
        "kernels",
        "engines use",
        "GPU",
        "memory",
        "disk",
        "runs train",
        "extras",
    ]
    assert list(found) == about
    assert f"torch {torch.__version__}" in found["packages"]
    assert "float" in found["engines use"]
    assert "on this machine" in found["runs train"]


def test_a_long_line_goes_on_below_its_first_word(monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches lines that a terminal breaks within a word, at its left edge.
    found = "a processor with many instructions " * 3
    monkeypatch.setattr(doctor, "_findings", lambda: [doctor.Finding(about="processor", found=found.strip())])
    monkeypatch.setattr(
        "cookhouse.telemetry.make_console", lambda: Console(force_terminal=True, width=60, color_system=None)
    )
    lines = CliRunner().invoke(app, ["doctor"], catch_exceptions=False).output.splitlines()
    assert lines[0] == "processor     a processor with many instructions a processor"
    assert lines[1:]
    assert all(line.startswith(" " * 14) and line[14] != " " for line in lines[1:])


def test_without_a_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches a machine that is several times slower without a word about why.
    monkeypatch.setattr(cpu, "cpu_kernels", lambda: None)
    assert "several times slower -> install g++" in said()["kernels"]


def test_a_gpu_that_torch_cannot_use_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Catches the commonest trouble: a driver, and a torch that was built without CUDA.
    driver = tmp_path / "version"
    driver.touch()
    monkeypatch.setattr(doctor, "_NVIDIA_DRIVER", driver)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    found = said()["GPU"]
    assert "is a build for the CPU alone -> install a build with CUDA: uv pip install" in found
    release = torch.__version__.partition("+")[0]
    assert f"--reinstall-package torch torch=={release} --torch-backend=auto (with pip: https://" in found
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert "finds no GPU -> see what nvidia-smi says" in said()["GPU"]


@pytest.mark.parametrize(("cuda", "way_out"), [(None, ""), ("13.0", "--torch-backend=cpu")])
def test_gigabytes_of_cuda_without_a_gpu_are_told(
    cuda: str | None, way_out: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "_NVIDIA_DRIVER", tmp_path / "none")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    finding = doctor._gpu()
    assert finding.found.startswith("none; torch ")
    assert way_out in finding.way_out
    assert bool(finding.way_out) == bool(way_out)


def test_the_smaller_build_is_told_before_the_engine_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Catches gigabytes of CUDA on a laptop for somebody who follows the command of the line above.
    monkeypatch.setattr(doctor, "has_engine", lambda *_: False)
    monkeypatch.setattr(doctor, "_NVIDIA_DRIVER", tmp_path / "version")
    monkeypatch.setenv("PATH", str(tmp_path))
    said = [finding for finding in doctor._findings() if finding.found.startswith("pip brings torch with CUDA")]
    assert said[0].way_out.partition(" torch ")[2].startswith("--torch-backend=cpu (with pip: https://")
    (tmp_path / "version").touch()
    assert not any("CUDA" in finding.found for finding in doctor._findings())


def test_kernels_of_the_wheel_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = SimpleNamespace(file=Path("/lib/prebuilt/train-avx512.so"))
    monkeypatch.setattr(cpu, "cpu_kernels", lambda: kernels)
    assert doctor._kernels().found == "prebuilt for avx512"


def test_an_old_processor_is_told(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("model name\t: Old\nflags\t\t: sse sse2\n\nmodel name\t: Second\nflags\t: avx2\n")
    finding = doctor._processor(cpuinfo)
    assert finding.found.startswith("Old: no AVX2")
    assert "AVX2" in finding.way_out


def test_a_key_that_is_none_is_told_and_nothing_can_be_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "sk-123")
    found = said(code=1)["runs train"]
    assert "a key starts with 'tml-'" in found
    assert "sk-123" not in found


def test_missing_extras_have_their_command(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"gcs": ("gcsfs>=1",), "s3": ("s3fs>=2024",), "wandb": ()}
    every = [Extra(name=name, missing=packages) for name, packages in missing.items()]
    monkeypatch.setattr(doctor, "extras", lambda: every)
    monkeypatch.setattr(doctor, "install_command", lambda extra: f"install {extra}")
    assert said()["extras"] == "wandb installed gcs needs gcsfs>=1 s3 needs s3fs>=2024 -> to add one: install NAME"
