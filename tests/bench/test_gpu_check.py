"""Catches a stage that costs more than its own time: the minutes at a GPU are few, and nobody is there to help."""

import dataclasses
import io
import json
import os
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from scripts.gpu_check import packing
from scripts.gpu_check.__main__ import chosen
from scripts.gpu_check.check import Check
from scripts.gpu_check.figures import read_log
from scripts.gpu_check.stage import Stage
from scripts.gpu_check.stages import all_stages
from scripts.gpu_check.table import MOST_LINES, table
from scripts.gpu_check.wheels import missing
from scripts.gpu_wheels import missing as missing_there

HANGS = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('asleep', flush=True); time.sleep(60)"
# In a session of its own, as engines may be.
LEAVES = "import subprocess; subprocess.Popen(['sleep', '61'], start_new_session=True); print('left it')"
SIGNALLED = "import os; os.kill(os.getpid(), 11)"
READS = "import os; print('figures: {\"trials\": \"' + os.environ['TRIALS'] + '\"}')"
SHOWS = "print('figures: ' + '{\"speed\": 2.5}')"


def make_stage(number: int, *programs: str, seconds: float = 5.0, needs: frozenset[str] = frozenset()) -> Stage:
    commands = [("-c", program) for program in programs]
    return Stage(number=number, name=f"s{number}", about="-", seconds=seconds, commands=commands, needs=needs)


def make_check(folder: Path, seconds: float = 30.0, *, is_gpu: bool = False) -> Check:
    output, scratch = folder / "output", folder / "scratch"
    output.mkdir(parents=True, exist_ok=True)
    return Check(
        python=sys.executable,
        environment={**os.environ, "PYTHONUNBUFFERED": "1"},
        output=output,
        scratch=scratch,
        records=folder / "records",
        ends_at=time.monotonic() + seconds,
        is_gpu=is_gpu,
    )


def statuses(check: Check) -> list[str]:
    return [result["status"] for result in check.results.values()]


def is_running(*command: str) -> bool:
    wanted = b"\0".join(part.encode() for part in command) + b"\0"
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_bytes())
        except OSError:
            continue
    return wanted in found


def test_a_stage_costs_its_own_limit_and_nothing_else(tmp_path: Path) -> None:
    """Hangs and refuses to be interrupted, leaves a process, dies by a signal, fails, lacks a module; the next runs."""
    check = make_check(tmp_path)
    began_at = time.monotonic()
    check.run_all(
        [
            make_stage(1, HANGS, SHOWS, seconds=0.5),
            make_stage(2, LEAVES),
            make_stage(3, SIGNALLED, SHOWS),
            make_stage(4, "raise ValueError('no such thing')"),
            make_stage(5, "import not_there_at_all"),
            make_stage(6, SHOWS),
        ]
    )
    assert time.monotonic() - began_at < 20
    assert statuses(check) == ["timed out", "passed", "crashed", "failed", "cannot import", "passed"]
    assert not is_running("sleep", "61")
    lines = [json.loads(line) for line in (check.output / "results.jsonl").read_text().splitlines()]
    assert [line["why"] for line in lines[:1]] == ["asleep"]
    assert "SIGSEGV" in lines[2]["why"]
    assert lines[2]["figures"] == lines[5]["figures"] == {"speed": 2.5}, "a later command runs after a crash"
    assert lines[0]["figures"] == {}, "no command runs beyond the limit"
    with tarfile.open(check.output / "logs.tar.gz") as archive:
        assert archive.getnames() == [f"logs/0{n}-s{n}.log" for n in range(1, 7)]
        log = archive.extractfile("logs/04-s4.log")
        assert log is not None
        assert b"no such thing" in log.read()


def test_variables_of_a_command_are_its_own(tmp_path: Path) -> None:
    """Would catch both ways to compute measured as one."""
    check = make_check(tmp_path)
    stage = make_stage(1)
    check.run_all([dataclasses.replace(stage, commands=[("TRIALS=a,b", "-c", READS), ("-c", READS)])])
    (result,) = check.results.values()
    assert (result["status"], result["figures"]) == ("failed", {"trials": "a,b"})


def test_the_time_for_all_is_kept_and_what_had_none_is_told(tmp_path: Path) -> None:
    """Would catch the last stage cut off with all that it found, as a machine goes back."""
    check = make_check(tmp_path, seconds=10.9)
    check.run_all([make_stage(1, HANGS, seconds=60.0), make_stage(2, SHOWS, seconds=60.0)])
    assert statuses(check) == ["skipped", "skipped"], "less than a stage needs is left"
    check = make_check(tmp_path, seconds=10.9)
    check.run_all([make_stage(1, HANGS, seconds=0.8), make_stage(2, SHOWS, seconds=0.8)])
    assert statuses(check) == ["timed out", "skipped"]
    assert "the time for all stages was over" in check.table()


def test_what_cannot_be_imported_skips_the_stages_that_need_it(tmp_path: Path) -> None:
    """Would catch minutes spent on learning the same nine times."""
    check = make_check(tmp_path, is_gpu=True)
    check.results["device"] = {"name": "device", "figures": {"broken": {"trl": "ImportError: no"}, "gpus": 1}}
    needs = frozenset(("trl", "torch"))
    assert check._reason_to_skip(make_stage(1, needs=needs), 60.0) == "cannot import trl (ImportError: no)"
    assert check._reason_to_skip(make_stage(1, needs=frozenset(("torch",))), 60.0) == ""
    check.results["device"]["figures"]["gpus"] = 0
    assert check._reason_to_skip(make_stage(1, needs=frozenset(("torch",))), 60.0) == "torch finds no GPU"


def test_a_second_call_takes_results_and_caches_and_leaves_out_what_passed(tmp_path: Path) -> None:
    first = make_check(tmp_path / "first")
    made = first.caches / "triton" / "K" / "kernel.cubin"
    made.parent.mkdir(parents=True)
    made.write_bytes(b"code")
    made.with_suffix(".ttir").write_bytes(b"text")
    stages = [make_stage(1, SHOWS), make_stage(2, "exit(1)")]
    first.run_all(stages)
    assert "compile caches of 0 MB" in (first.output / "table.txt").read_text()
    second = make_check(tmp_path / "second")
    second.read_earlier(first.output)
    assert {file.name for file in second.caches.rglob("*") if file.is_file()} == {"kernel.cubin"}
    passed = frozenset(name for name, result in second.results.items() if result["status"] == "passed")
    assert chosen(stages, "", passed) == stages[1:]
    assert chosen(stages, "2, s1", passed) == stages
    with pytest.raises(SystemExit, match="no stage 7; there are s1, s2"):
        chosen(stages, "7", passed)
    second.ends_at = 0
    second.run_all(stages[1:])
    assert statuses(second) == ["passed", "failed"], "a stage without time keeps what is known of it"


def test_archives_keep_to_the_size_that_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch results that are left behind because a log or a cache is large."""
    log, caches = tmp_path / "long.log", tmp_path / "caches"
    log.write_bytes(b"first\n" + b"x" * 3_000_000 + b"\nlast")
    packing.pack_files(tmp_path / "logs.tar.gz", [log], tmp_path)
    with tarfile.open(tmp_path / "logs.tar.gz") as archive:
        member = archive.extractfile("long.log")
        assert member is not None
        text = member.read()
    assert len(text) < 2.2e6
    assert text.startswith(b"first")
    assert text.endswith(b"last")
    caches.mkdir()
    (caches / "a").write_bytes(os.urandom(5000))
    monkeypatch.setattr(packing, "PART_BYTES", 2000)
    packing.pack_caches(caches, tmp_path)
    parts = sorted(tmp_path.glob("caches.tar.gz.*"))
    assert [part.stat().st_size for part in parts[:2]] == [2000, 2000]
    assert packing.unpack_caches(tmp_path, tmp_path / "again") == 1
    (caches / "b").write_bytes(os.urandom(5000))
    assert "too much" in packing.pack_caches(caches, tmp_path)
    assert max(part.stat().st_size for part in tmp_path.glob("caches.tar.gz.*")) <= 2000


def test_an_archive_from_elsewhere_stays_in_its_folder(tmp_path: Path) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("../outside"), io.BytesIO())
    (tmp_path / "caches.tar.gz.0").write_bytes(content.getvalue())
    with pytest.raises(tarfile.TarError):
        packing.unpack_caches(tmp_path, tmp_path / "inside")


def test_figures_of_tests_and_of_programs_are_read_from_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        'figures: {"a": 1}\nfigures: {"a": 2, "b": "x"}\nfigures: {"c"\n'
        "FAILED tests/a.py::test_b[c] - AssertionError: no\nERROR tests/d.py\n"
        "=== 1 failed, 2 passed, 1 error in 3.21s ===\n5 passed in 0.10s\n"
    )
    assert read_log(log) == {
        "a": 2,
        "b": "x",
        "tests": {"failed": 1, "passed": 7, "error": 1},
        "failed": {"tests/a.py::test_b[c]": "AssertionError: no", "tests/d.py": ""},
    }


@pytest.mark.parametrize("count", [1, 17, 40])
def test_the_table_fits_whatever_was_found(count: int) -> None:
    figures: dict[str, Any] = {f"figure_{i}": i / 3 for i in range(200)}
    figures["failed"] = {f"tests/x.py::test_{i}": "no" for i in range(300)}
    result = {"status": "failed", "seconds": 1.0, "limit": 60.0, "why": "said " * 80, "figures": figures}
    text = table([{**result, "number": i, "name": f"stage-{i}"} for i in range(count)], ["a note " * 60] * 3)
    lines = text.splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= 120
    assert all(f" stage-{i} " in text for i in range(count))


def test_only_what_is_missing_is_installed_and_ours_always(tmp_path: Path) -> None:
    for name in ("cookhouse-0-py3-none-any.whl", "pytest-1-py3-none-any.whl", "not_there_at_all-1-py3-none-any.whl"):
        (tmp_path / name).touch()
    found = missing(tmp_path, sys.executable, os.environ)
    assert [each.name.partition("-")[0] for each in found] == ["cookhouse", "not_there_at_all"]


def test_wheels_are_those_of_what_our_requirements_come_to() -> None:
    """Would catch a machine without a network that lacks what a package there requires."""
    requirements = ["pydantic>=2", "torch>=2", "tomli; python_version < '3.11'", "cookhouse[a]; extra == 'b'"]
    requirements += ["alembic; extra == 'a'", "zstandard; extra == 'c'", "httpx[http2]>=0.25"]
    found = missing_there(requirements, frozenset(("b",)))
    assert {"pydantic", "pydantic-core", "alembic", "mako", "sqlalchemy", "h2", "hpack"} <= set(found)
    assert not {"torch", "tomli", "zstandard", "cookhouse", "typing-extensions", "httpx", "certifi"} & set(found)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_stages_name_modules_and_tests_that_there_are(device: str) -> None:
    """Would catch a name that was changed meanwhile, on a machine that is there for minutes."""
    root = Path(__file__).parents[2]
    stages = all_stages(device, 4)
    # Of the nine minutes some seconds are for what is installed first and packed last.
    assert device == "cpu" or sum(stage.seconds for stage in stages[:8]) <= 9 * 60 - 25
    for stage in stages:
        for command in (each[each.index("-m") :] for each in stage.commands):
            name = command[1].replace(".", "/")
            assert name in ("pytest", "cookhouse") or (root / f"{name}.py").exists(), command
            assert all((root / each).exists() for each in command[2:] if each.startswith("tests/")), command
            assert ("-x" in command, "default" in command) == (False, name == "pytest")
