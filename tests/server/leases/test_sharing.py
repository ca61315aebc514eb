"""Catches servers that are started to share, and could not."""

import sys
from pathlib import Path
from typing import Any

import pytest

from cookhouse.cli import main as command
from cookhouse.errors import InputError
from cookhouse.server.__main__ import main
from cookhouse.server.leases.sharing import Sharing, sharing_of

GIVEN: dict[str, Any] = {
    "folder": Path("/shared"),
    "url": "http://10.0.0.1:8000",
    "database": "postgresql://me@here/x",
    "api_keys": ["tml-a"],
    "journal": None,
    "samplers_only": False,
}


def test_options_that_go_together() -> None:
    assert sharing_of(**GIVEN) == Sharing(folder=Path("/shared"), url="http://10.0.0.1:8000")
    assert sharing_of(**GIVEN | {"url": "https://gpu.lan/"}) == Sharing(folder=Path("/shared"), url="https://gpu.lan")
    assert sharing_of(**GIVEN | {"folder": None, "url": None, "database": None}) is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"folder": None}, "--server-url is for several servers .* needs --shared-folder FOLDER"),
        ({"url": None}, "--shared-folder is for several servers .* needs --server-url URL"),
        ({"database": None}, r"--database postgresql://USER:PASSWORD@HOST/NAME \(extra `postgres`\)"),
        ({"api_keys": []}, "the same keys, and this one was given none"),
        ({"journal": "off"}, "--journal off keeps nothing that another server could take over"),
        ({"samplers_only": True}, "--samplers-only cannot take over models that train"),
        ({"end_sessions": ["start"]}, "would end the sessions of the other servers"),
        ({"end_sessions": ["missing"]}, "missing would end sessions that other servers can bring back"),
        ({"end_sessions": ["eof"]}, "eof would end sessions that other servers' clients began"),
        *(
            ({"url": url}, "is no address of a server; write http://HOST:PORT")
            for url in ("10.0.0.1:8000", "ftp://here", "http://", "http://here/path", "http://me@here", "http://h:x")
        ),
    ],
)
def test_options_that_do_not(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        sharing_of(**GIVEN | changed)


def test_both_command_lines_refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Would catch an option that is taken and has no effect."""
    assert main(["--state-dir", str(tmp_path), "--shared-folder", str(tmp_path)]) == 2
    assert "needs --server-url URL beside it" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        command(["serve", "--state-dir", str(tmp_path), "--server-url", "http://here:8000"])
    assert ended.value.code == 2
    assert "needs --shared-folder" in capsys.readouterr().err


def test_without_the_driver_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Would catch an import error where what is missing can be installed."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.setenv("COOKHOUSE_API_KEYS", "tml-a")
    words = ["--state-dir", str(tmp_path / "state"), "--shared-folder", str(tmp_path), "--server-url", "http://h:8000"]
    assert main([*words, "--database", "postgresql://me@here/x"]) == 2
    assert "needs the package psycopg, which is not installed" in capsys.readouterr().err
