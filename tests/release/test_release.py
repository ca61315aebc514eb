"""Catches a release that is refused to nobody: uncommitted, without a changelog, or with packages that lack a file."""

import io
import subprocess
import tarfile
import zipfile
from collections.abc import Collection
from pathlib import Path

import pytest
import yaml
from scripts.release import __main__ as release
from scripts.release import contents, project
from scripts.release.contents import faults

from cookhouse.engine.instructions import TARGETS
from cookhouse.version import __version__

ROOT = Path(__file__).parents[2]
SOURCES = ("cookhouse/py.typed", "cookhouse/cli/main.py", "cookhouse/assets/tiny/vocab.json")
KERNELS = tuple(
    f"cookhouse/engine/kernels/cpu/{folder}-{target.name}.so"
    for folder in ("prebuilt/train", "decode/prebuilt/decode")
    for target in TARGETS
)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A committed tree that may be released."""
    for module in (release, project):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {__version__}\n\nThe first.\n\n## 0.0.1\n\nOlder.\n")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=Some", "-c", "user.email=some@example.invalid", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Some")


def test_a_committed_version_with_its_section_is_taken(tree: Path) -> None:
    assert release._refusals() == []
    git(tree, "tag", f"v{__version__}")
    assert release._refusals() == []


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("changed", "the tree has changes"),
        ("new file", "the tree has changes"),
        ("no section", "CHANGELOG.md has no section"),
        ("empty section", "CHANGELOG.md has no section"),
        ("tagged elsewhere", "is the tag of another commit"),
    ],
)
def test_what_may_not_be_released_is_refused_before_anything_is_built(
    case: str, said: str, tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tree / "CHANGELOG.md"
    match case:
        case "changed":
            log.write_text(log.read_text() + "More.\n")
        case "new file":
            (tree / "new").touch()
        case "no section":
            log.write_text(log.read_text().replace(__version__, "Unreleased"))
        case "empty section":
            log.write_text(log.read_text().replace("The first.\n", ""))
        case "tagged elsewhere":
            git(tree, "tag", f"v{__version__}")
            (tree / "new").touch()
    if said != "the tree has changes":
        commit(tree)
    monkeypatch.setattr(release, "build_packages", lambda folder: pytest.fail(f"built into {folder}"))
    monkeypatch.setattr(release, "check_files", lambda: pytest.fail("checked"))
    assert release.main() == 1
    (line, *_) = capsys.readouterr().err.splitlines()
    assert line.startswith("refused: ")
    assert said in line


def write_package(file: Path, names: Collection[str]) -> Path:
    if file.suffix == ".whl":
        with zipfile.ZipFile(file, "w") as wheel:
            for name in names:
                wheel.writestr(name, "x")
        return file
    with tarfile.open(file, "w:gz") as source:
        for name in names:
            held = tarfile.TarInfo(
                f"cookhouse-1/src/{name}" if name.startswith("cookhouse/") else f"cookhouse-1/{name}"
            )
            held.size = 1
            source.addfile(held, io.BytesIO(b"x"))
    return file


PURE, LINUX, SOURCE = (
    "cookhouse-1-py3-none-any.whl",
    "cookhouse-1-py3-none-manylinux_2_27_x86_64.whl",
    "cookhouse-1.tar.gz",
)


@pytest.mark.parametrize(
    ("file", "names", "said"),
    [
        (PURE, SOURCES, []),
        (LINUX, (*SOURCES, *KERNELS), []),
        (SOURCE, (*SOURCES, "pyproject.toml"), []),
        (PURE, SOURCES[1:], ["has no cookhouse/py.typed"]),
        (SOURCE, SOURCES[:-1], ["has no cookhouse/assets/tiny/vocab.json"]),
        (PURE, (*SOURCES, "tests/conftest.py"), ["has tests/conftest.py, which is no part"]),
        (SOURCE, (*SOURCES, "tests/conftest.py"), ["has tests/conftest.py, which is no part"]),
        (PURE, (*SOURCES, "cookhouse/cli/main.pyc"), ["has cookhouse/cli/main.pyc"]),
        (PURE, (*SOURCES, KERNELS[0]), ["other libraries"]),
        (LINUX, (*SOURCES, *KERNELS[1:]), ["other libraries"]),
        (LINUX, (*SOURCES, *KERNELS, "cookhouse.libs/libgomp-1.so.1.0.0"), ["other libraries"]),
    ],
)
def test_a_package_has_what_it_should_and_nothing_else(
    file: str, names: Collection[str], said: list[str], tmp_path: Path
) -> None:
    """Would catch a template left out, tests let in, a kernel missing for one processor, a second pool of threads."""
    found = list(faults(write_package(tmp_path / file, names), SOURCES))
    assert len(found) == len(said), found
    assert all(words in fault for words, fault in zip(said, found, strict=True))


def test_a_large_package_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "MOST_BYTES", 10)
    (fault,) = faults(write_package(tmp_path / PURE, SOURCES), SOURCES)
    assert "a release has at most" in fault


@pytest.mark.usefixtures("tree")
def test_sections_are_found_by_version() -> None:
    assert project.changes(__version__) == "The first."
    assert project.changes("0.0.1") == "Older."
    assert project.changes("0.0") == ""


@pytest.mark.parametrize(
    ("address", "known"),
    [
        ("https://repository.invalid/cookhouse", None),
        ("repository", None),
        ("https://github.com/a/cookhouse", "https://github.com/a/cookhouse"),
    ],
)
def test_a_placeholder_is_no_address(address: str, known: str | None, tree: Path) -> None:
    """Would catch a release whose pages lead nowhere."""
    (tree / "pyproject.toml").write_text(f'[project.urls]\nRepository = "{address}"\n')
    assert project.repository() == known


def test_the_address_stands_once() -> None:
    """Would catch a second place to change, which is forgotten."""
    files = [ROOT / name for name in ("Makefile", "CITATION.cff", *(path.name for path in ROOT.glob("*.md")))]
    files += [path for folder in (".ci", ".github", "docs") for path in (ROOT / folder).rglob("*")]
    texts = {path: path.read_bytes() for path in files if path.is_file() and path.suffix not in (".png", ".svg")}
    assert [path for path, text in texts.items() if b"repository.invalid" in text] == []
    assert (ROOT / "pyproject.toml").read_text().count("repository.invalid") == 1


def test_the_version_that_is_cited_is_this_one_and_has_its_section() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__
    assert project.changes(__version__)
