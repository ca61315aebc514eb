"""Catches a build that fails where it need not, code loaded that another user may have written, and silence on it."""

import _ctypes
import logging
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

import pytest

from cookhouse.engine.instructions import NATIVE, TARGETS, Target, usable_targets
from cookhouse.engine.kernels.cpu import build, cache, cpu_kernels
from cookhouse.engine.kernels.cpu.build import Kernels, prebuild
from cookhouse.engine.kernels.cpu.decode.build import library

_build = import_module("cookhouse.engine.kernels.cpu.build")
_SOURCE = 'extern "C" int answer() { return %s; }'
_COMPILER = shutil.which("g++") or shutil.which("c++") or ""
needs_compiler = pytest.mark.skipif(not _COMPILER, reason="no C++ compiler")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")


@pytest.fixture(autouse=True)
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the source of `answer`; kernels are kept in `kept` beside it, and nothing has been said yet."""
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "answer.cpp").write_text(_SOURCE % 42, encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kept"))
    monkeypatch.delenv("CXX", raising=False)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    for said in (cache._refuse, _build._compiler):
        said.cache_clear()
    yield folder
    for said in (cache._refuse, _build._compiler):
        said.cache_clear()
    assert not list(temporary.iterdir())


def _answer(sources: Path) -> int | None:
    compiled = build(Kernels("answer", sources, (), ("answer",)), "something is slower")
    if compiled is None:
        return None
    answer = int(compiled.answer())
    _ctypes.dlclose(compiled._handle)  # else it would stand for every later file of its name
    return answer


def _kept(sources: Path) -> list[Path]:
    return sorted((sources.parent / "kept").rglob("*.so"))


@needs_compiler
def test_kernels_are_kept_for_the_next_process(sources: Path) -> None:
    assert [_answer(sources), _answer(sources)] == [42, 42]
    (file,) = _kept(sources)
    assert stat.S_IMODE(file.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


@needs_compiler
def test_a_build_is_told_and_what_is_kept_is_not(sources: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Would catch a first start that takes many seconds in silence, and one that says so each time."""
    with caplog.at_level(logging.INFO):
        assert [_answer(sources), _answer(sources)] == [42, 42]
    assert caplog.messages == ["building the kernels (answer) for this processor, once: a minute or more on two cores"]


@needs_compiler
def test_another_compiler_or_other_arguments_build_anew(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a library of other arguments, or of a release before an update, taken for what is asked for now."""
    _answer(sources)
    monkeypatch.setenv("CXX", f"{_COMPILER} -O1")
    _answer(sources)
    assert len(_kept(sources)) == 2
    script = tmp_path / "compiler"
    script.write_text(f'#!/bin/sh\n[ "$1" = -v ] && {{ echo release one >&2; exit; }}\nexec {_COMPILER} "$@"\n')
    script.chmod(0o700)
    monkeypatch.setenv("CXX", str(script))
    _answer(sources)
    assert len(_kept(sources)) == 3
    script.write_text(script.read_text().replace("one", "two"))
    _answer(sources)
    assert len(_kept(sources)) == 4


@needs_compiler
@pytest.mark.parametrize("case", ["a file", "another's", "for all", "for its group", "around it for all", "no home"])
def test_kernels_are_built_where_none_can_be_kept(
    case: str, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Would catch kernels lost to a read-only home, and code loaded from a folder that another user may write to."""
    folder = tmp_path / "kept" / "cookhouse"
    folder.mkdir(parents=True)
    match case:
        case "a file":
            folder.rmdir()
            folder.write_bytes(b"")
        case "another's":
            monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
            if folder.stat().st_uid == 0:
                monkeypatch.setattr(cache, "_is_safe", lambda place, **_: place != folder)
        case "for all":
            folder.chmod(0o777)
        case "for its group":
            folder.chmod(0o770)
        case "around it for all":
            folder.parent.chmod(0o777)
        case "no home":
            monkeypatch.delenv("XDG_CACHE_HOME")
            monkeypatch.setattr(Path, "home", _no_home)
    assert [_answer(sources), _answer(sources)] == [42, 42]
    assert not _kept(sources)
    (said,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert said.startswith("compiled kernels are not kept, and each start takes seconds longer: ")
    assert "XDG_CACHE_HOME" in said


def _no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


@needs_compiler
def test_folders_of_a_users_own_group_and_sticky_ones_around_are_sane(sources: Path, tmp_path: Path) -> None:
    """Where each user has a group, what they make is often writable for it; and everybody may write to /tmp."""
    around = tmp_path / "kept"
    around.mkdir()
    for mode in (0o775, 0o1777):
        around.chmod(mode)
        assert _answer(sources) == 42
        assert len(_kept(sources)) == 1


@needs_compiler
@needs_root
@pytest.mark.parametrize("what", ["folder", "file", "mode", "link"])
def test_a_library_that_another_user_put_there_is_not_loaded(what: str, sources: Path, tmp_path: Path) -> None:
    assert _answer(sources) == 42
    (file,) = _kept(sources)
    evil = tmp_path / "evil.cpp"
    evil.write_text(_SOURCE % 666, encoding="utf-8")
    library = tmp_path / "evil.so"
    subprocess.run([_COMPILER, "-shared", "-fPIC", str(evil), "-o", str(library)], check=True)
    file.unlink()
    if what == "link":
        file.symlink_to(library)
    else:
        shutil.copy(library, file)
    match what:
        case "folder":
            os.chown(file.parent, 12345, -1)
        case "file":
            os.chown(file, 12345, -1)
        case "mode":
            file.chmod(0o666)
    assert _answer(sources) == 42


@needs_compiler
@pytest.mark.parametrize("content", [b"", b"not a library", None])
def test_a_kept_library_that_is_damaged_is_built_again(
    content: bytes | None, sources: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also one without a function that is asked for, which would otherwise fail as an attribute in mid-run."""
    assert _answer(sources) == 42
    (file,) = _kept(sources)
    file.unlink()
    if content is None:
        other = sources.parent / "other.cpp"
        other.write_text('extern "C" int another() { return 1; }', encoding="utf-8")
        subprocess.run([_COMPILER, "-shared", "-fPIC", str(other), "-o", str(file)], check=True)
    else:
        file.write_bytes(content)
    file.chmod(0o700)
    assert _answer(sources) == 42
    assert "cannot be used and are built again" in caplog.text


@needs_compiler
def test_a_function_that_is_nowhere_is_named(sources: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert build(Kernels("answer", sources, (), ("answer", "question")), "something is slower") is None
    assert "has no question" in caplog.text
    assert "so something is slower" in caplog.text


@needs_compiler
def test_sources_that_do_not_compile_are_reported(sources: Path, caplog: pytest.LogCaptureFixture) -> None:
    (sources / "broken.cpp").write_text("this is not C++", encoding="utf-8")
    assert _answer(sources) is None
    assert "so something is slower" in caplog.text


@pytest.mark.parametrize("case", ["nothing on the path", "CXX is not there"])
def test_a_missing_compiler_is_said_once_and_loudly(
    case: str, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Would catch a machine that is several times slower than it need be, and nobody knows why."""
    if case == "nothing on the path":
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        monkeypatch.setenv("CXX", str(tmp_path / "none"))
    assert [_answer(sources), _answer(sources)] == [None, None]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "no C++ compiler" in record.getMessage()
    assert "several times slower; install g++ or name one in CXX" in record.getMessage()


def _put_prebuilt(sources: Path, answer: int, target: Target | None = None) -> Path:
    """As a wheel has it for a set of instructions, by default what this processor takes first."""
    file = Kernels("answer", sources, (), ("answer",)).prebuilt(target or usable_targets()[0])
    file.parent.mkdir(exist_ok=True)
    source = sources.parent / "prebuilt.cpp"
    source.write_text(_SOURCE % answer, encoding="utf-8")
    subprocess.run([_COMPILER, "-shared", "-fPIC", str(source), "-o", str(file)], check=True)
    return file


@needs_compiler
def test_what_the_wheel_brings_is_taken_before_a_compiler(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch seconds of compiling, or slow computing where there is no compiler, with a library beside it."""
    _put_prebuilt(sources, 7)
    monkeypatch.setattr(_build, "_COMPILERS", ())
    assert _answer(sources) == 7
    assert not _kept(sources)
    monkeypatch.setenv("CXX", _COMPILER)  # asked for by name
    assert _answer(sources) == 42
    monkeypatch.setenv("CXX", "none")
    assert _answer(sources) is None


@needs_compiler
def test_a_set_that_may_not_be_used_is_not_loaded(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _put_prebuilt(sources, 7, TARGETS[0])
    monkeypatch.setattr(_build, "usable_targets", lambda: TARGETS[1:])
    _put_prebuilt(sources, 8, TARGETS[2])
    assert _answer(sources) == 8


@needs_compiler
@pytest.mark.parametrize("case", ["another platform's", "threads not loaded", "a function is missing"])
def test_what_cannot_be_loaded_is_built_instead(
    case: str, sources: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Would catch a second pool of threads, and an engine that does not start for a library of no use to it."""
    file = _put_prebuilt(sources, 7)
    match case:
        case "another platform's":
            file.write_bytes(b"MZ")
        case "threads not loaded":
            monkeypatch.setattr(_build, "_THREADS", "libgomp-of-nobody.so.1")
        case "a function is missing":
            (sources / "question.cpp").write_text('extern "C" int question() { return 1; }', encoding="utf-8")
            assert build(Kernels("answer", sources, (), ("answer", "question")), "something is slower") is not None
            return
    with caplog.at_level(logging.INFO):
        assert _answer(sources) == 42
    assert "of this installation cannot be used" in caplog.text


@needs_compiler
def test_a_wheels_libraries_are_compiled_as_those_at_first_use(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch flags of only one of the two, and with them other bits."""
    commands: list[Sequence[str]] = []
    script = tmp_path / "compiler"
    script.write_text(f'#!/bin/sh\nexec {_COMPILER} "$@"\n')
    script.chmod(0o700)
    monkeypatch.setenv("CXX", str(script))
    compile_it = _build._compile

    def compile_and_note(command: Sequence[str], file: Path) -> None:
        commands.append(command)
        compile_it(command, file)

    monkeypatch.setattr(_build, "_compile", compile_and_note)
    monkeypatch.setattr(_build, "TARGETS", TARGETS[-1:])
    monkeypatch.setattr(_build, "usable_targets", lambda: TARGETS[-1:])
    assert _answer(sources) == 42
    (file,) = prebuild(Kernels("answer", sources, (), ("answer",)))
    assert file.parent == sources / "prebuilt"
    at_first_use, for_a_wheel = commands
    assert at_first_use == for_a_wheel


@needs_compiler
def test_a_compiler_that_lacks_a_set_builds_the_next(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch no kernels at all on a new processor with an old compiler."""
    script = tmp_path / "compiler"
    script.write_text(f'#!/bin/sh\nfor each; do [ "$each" = -mnew ] && exit 1; done\nexec {_COMPILER} "$@"\n')
    script.chmod(0o700)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setattr(_build, "usable_targets", lambda: (Target("new", frozenset(), ("-mnew",)), NATIVE))
    assert [_answer(sources), _answer(sources)] == [42, 42]
    assert len(_kept(sources)) == 1


@pytest.mark.slow
def test_a_user_without_home_or_entry_computes(tmp_path: Path) -> None:
    """Would catch a container that runs as a number, and whose engine does not start."""
    user = ["unshare", "--user", "--map-user=54321"]
    if shutil.which("unshare") is None or subprocess.run([*user, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs user namespaces")
    program = (
        "import os, pwd\n"
        "assert os.getuid() == 54321 and 54321 not in [entry.pw_uid for entry in pwd.getpwall()]\n"
        "from cookhouse.engine import TorchEngine\n"
        "from cookhouse.engine.kernels.cpu import cpu_kernels\n"
        "TorchEngine(device='cpu')\n"
        "assert (cpu_kernels() is None) == (os.environ['HAS_COMPILER'] == '')\n"
    )
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "HAS_COMPILER": _COMPILER}
    subprocess.run([*user, sys.executable, "-c", program], env=environment, cwd=tmp_path, check=True)


@needs_compiler
@pytest.mark.parametrize("compiler", ["g++-9", "g++-10", "g++-11"])
def test_older_releases_of_the_compiler_build_them(compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch what only newer ones have; those that this machine has are tried."""
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    monkeypatch.setenv("CXX", compiler)
    cpu_kernels.cache_clear()
    try:
        assert cpu_kernels() is not None
        assert library.__wrapped__() is not None
    finally:
        cpu_kernels.cache_clear()
