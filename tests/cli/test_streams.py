"""A closed standard stream, and `~` that no shell expanded. Catches a run that ends in an AttributeError, and a folder
called `~`.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from cookhouse.cli.home import with_home
from cookhouse.recipes import find_recipe, make_config

STREAMS = """
import os, sys
from cookhouse.cli.streams import open_closed_streams
open_closed_streams()
file = open("said.txt", "w")
print(sys.stdin.isatty(), sys.stdin.read() == "", sys.stdout.isatty(), file.fileno() > 2, file=file)
print("nobody reads this"), print("nor this", file=sys.stderr)
os.system("cat && echo ok")
"""


@pytest.mark.parametrize("closed", ["<&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_the_null_device(tmp_path: Path, closed: str) -> None:
    words = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", STREAMS]
    subprocess.run(words, cwd=tmp_path, check=True, timeout=120, capture_output=True)
    assert (tmp_path / "said.txt").read_text().split() == ["False", "True", "False", "True"]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["checkpoints", "export", "first", "~/out"], ["checkpoints", "export", "first", "HOME/out"]),
        (["runs", "list", "--under=~/runs"], ["runs", "list", "--under=HOME/runs"]),
        (["sample", "first", "~/is what?"], ["sample", "first", "~/is what?"]),
        (["view", "~"], ["view", "HOME"]),
        (["view", "a~/b"], ["view", "a~/b"]),
    ],
)
def test_places_among_words(words: list[str], meant: list[str]) -> None:
    assert with_home(words) == [word.replace("HOME", str(Path.home())) for word in meant]


def test_a_folder_of_a_model_is_recorded_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a run that is resumed from another folder with another model of that name."""
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL", "TINKER_CREDENTIAL_CMD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    recipe = find_recipe("supervised")
    given = {"renderer_name": "human_ai", "learning_rate": 1e-3}
    for name in ("mine", "./mine"):
        assert make_config(recipe, {"model_name": name, **given}).model_name == str(tmp_path / "mine")
        made = recipe.config_class(model_name=name, **given)
        assert make_config(recipe, made).model_name == str(tmp_path / "mine")
    assert make_config(recipe, {"model_name": "Qwen/Qwen3-8B"}).model_name == "Qwen/Qwen3-8B"
    monkeypatch.setenv("TINKER_BASE_URL", "http://127.0.0.1:9")
    assert make_config(recipe, {"model_name": "mine", **given}).model_name == "mine"
