"""Extras: the command that adds one fits how this copy of cookhouse was installed."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cookhouse import extras


class Installed:
    """As much of a distribution as is read."""

    def __init__(self, direct_url: Any = None, requires: Sequence[str] = (), names: Sequence[str] = ()) -> None:
        self._text = None if direct_url is None else json.dumps(direct_url)
        self.requires = list(requires)
        self._names = list(names)

    @property
    def metadata(self) -> "Installed":
        return self

    def get_all(self, field: str) -> list[str]:
        assert field == "Provides-Extra"
        return self._names

    def read_text(self, name: str) -> str | None:
        return self._text if name == "direct_url.json" else None


def install(monkeypatch: pytest.MonkeyPatch, installed: Installed) -> None:
    monkeypatch.setattr(extras, "_installed", lambda: installed)
    monkeypatch.setattr("shutil.which", lambda name: sys.executable if name == "python" else None)


def test_a_folder_is_installed_again_with_its_constraints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches the name of the package where no index has it: what is printed would install somebody else's.
    folder = tmp_path / "my code"
    folder.mkdir()
    (folder / "constraints.txt").write_text("")
    install(monkeypatch, Installed({"url": folder.as_uri(), "dir_info": {"editable": True}}))
    assert extras.install_command("wandb") == (
        f"python -m pip install -e '{folder}[wandb]' -c '{folder / 'constraints.txt'}'"
    )
    assert extras.install_command("verifiers") == f"python -m pip install -e '{folder}[verifiers]'"


def test_a_wheel_is_named_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = (tmp_path / "cookhouse-1-py3-none-any.whl").as_uri()
    install(monkeypatch, Installed({"url": wheel, "archive_info": {}}))
    assert extras.install_command("data") == f"python -m pip install 'cookhouse[data] @ {wheel}'"


def test_what_came_from_an_index_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Installed())
    assert extras.install_command("data") == "python -m pip install 'cookhouse[data]'"


def test_another_environment_than_the_shells_is_named_by_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches a package that goes into the environment of the shell, where cookhouse is not.
    install(monkeypatch, Installed())
    monkeypatch.setattr("shutil.which", lambda _: "/elsewhere/python")
    assert extras.install_command("data").startswith(f"{sys.executable} -m pip ")


def test_an_environment_without_pip_is_filled_by_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Installed())
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    assert extras.install_command("data") == "uv pip install --python python 'cookhouse[data]'"


def test_extras_say_which_packages_are_missing_or_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    requires = [
        'pytest>=1; extra == "there"',
        'pytest>=999; extra == "old"',
        'no-such-thing; extra == "none"',
        "chz>=9999",
    ]
    install(monkeypatch, Installed(requires=requires, names=["there", "old", "none", "dev"]))
    found = {extra.name: extra.missing for extra in extras.extras()}
    assert found == {"none": ("no-such-thing",), "old": ("pytest>=999",), "there": ()}


def test_ours_are_those_of_the_project() -> None:
    assert {"data", "wandb", "vision", "inspect"} <= {extra.name for extra in extras.extras()}


def test_an_extra_that_contains_another_of_ours_lacks_what_that_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a server's extra that is said to be there without the engine."""
    requires = ['cookhouse[engine]; extra == "ray"', 'pytest>=1; extra == "ray"', 'no-such-thing; extra == "engine"']
    install(monkeypatch, Installed(requires=requires, names=["ray", "engine"]))
    assert {extra.name: extra.missing for extra in extras.extras()} == {
        "engine": ("no-such-thing",),
        "ray": ("no-such-thing",),
    }
