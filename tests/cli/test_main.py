"""Exit codes, one-line errors, and what starting the command loads."""

import errno
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from cookhouse.cli import main
from cookhouse.cli.help import COMMANDS
from cookhouse.cli.main import app, with_home
from cookhouse.errors import ServiceError
from cookhouse.recipes import find_recipe, make_config

HEAVY = ("torch", "transformers", "tinker", "fastapi", "sqlalchemy", "uvicorn", "ray", "datasets")


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["recipes"],
        ["run", "supervised", "--help"],
        ["serve", "--help"],
        ["report", "--help"],
        ["checkpoints", "export", "--help"],
        ["models", "show", "--help"],
    ],
)
def test_a_quick_command_loads_no_heavy_package(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom cookhouse.cli import main\n"
        f"try: main({arguments!r})\n"
        "except SystemExit as exit: assert not exit.code, exit.code\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "which recipe? name one of supervised, chat_sl, sl_loop, dpo, "),
        (["sft"], "sft is a recipe: "),
        (["grpo"], "there is no command grpo; it is settings of rl: cookhouse run rl advantage=normalized"),
        (["train"], "there is no command train; run supervised to learn from conversations"),
        (["run", "grpo"], "grpo is no recipe; it is settings of rl: cookhouse run rl advantage=normalized"),
        (["run", "superviesd"], "unknown recipe 'superviesd'; did you mean supervised?"),
        (["run", ":superviesd"], "unknown recipe 'superviesd'; did you mean supervised?"),
        (["describe", "superviesd"], "unknown recipe 'superviesd'; did you mean supervised?"),
        (["run", "supervised", "--batchsize", "3"], "no such option: --batchsize; did you mean --batch-size"),
        (
            ["run", "supervised", "batchsize=3"],
            "unknown setting of recipe supervised 'batchsize'; did you mean batch_size",
        ),
        (["run", ":supervised", "batch_size=x"], "batch_size='x' does not fit; batch_size takes a whole number"),
        (["run", "sl_basic", "-l", "fast"], "learning_rate='fast' does not fit; learning_rate takes a number"),
        (["run", "supervised", "8"], "'8' is not a setting; write key=value, such as batch_size=8, or a flag"),
        (["rum"], "no such command 'rum'. Did you mean 'run'?"),
        (["serve", "--port", "65536"], "invalid value for '--port': '65536' is more than 65535, the most allowed\n"),
        (["serve", "--port", "22x"], "invalid value for '--port': '22x' is no whole number\n"),
        (["serve", "--silent-minutes", "0"], "invalid value for '--silent-minutes': '0' is less than 0.5, the least"),
        (["sample", "--temperature", "hot"], "invalid value for '--temperature': 'hot' is no number\n"),
        (["new", "env", "foo"], "invalid value for 'kind': 'env' is not one of 'environment', 'tools', "),
        (["run", "supervised", "--config", "nope.yaml"], "there is no file nope.yaml; name one that ends in .json"),
        (
            ["run", "supervised", "force_renderer=maybe"],
            "force_renderer='maybe' does not fit; force_renderer takes true",
        ),
    ],
)
def test_bad_words_give_one_line_and_exit_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of a command that raises `error`."""

    def recipes() -> None:
        raise error

    monkeypatch.setattr("cookhouse.cli.recipes.recipes", recipes)
    return call("recipes")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ServiceError("down\x1b[2J\n  its log"), 1, "error: down\\x1b[2J\n  its log\n"),
        (OSError(errno.ENOSPC, "No space left on device", "/run/x"), 2, "error: no space left on the disk for /run/x"),
        (OSError(errno.EFBIG, "File too large"), 2, "error: no space left on the disk; free some"),
        (PermissionError(errno.EACCES, "Permission denied", "/run/x"), 2, "error: Permission denied: '/run/x'"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_a_failure_of_each_kind_has_its_exit_code(
    error: BaseException,
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert fail_with(error, monkeypatch) == code
    assert capsys.readouterr().err.startswith(message)


def test_a_bug_shows_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        fail_with(ZeroDivisionError(), monkeypatch)


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert call() == 0
    out = capsys.readouterr().out
    listed = re.findall(r"^  ([a-z]+) ", out.partition("Commands:")[2], flags=re.MULTILINE)
    assert listed == list(COMMANDS), "name a new command in COMMANDS, where people come to need it"
    assert listed[0] == "run"


def test_the_list_of_commands_says_what_their_own_help_says() -> None:
    """Would catch a sentence that was changed in one of the two places."""
    group: Any = typer.main.get_command(app)
    own = {name: group.commands[name].get_short_help_str(1000) for name in COMMANDS}
    assert own == {name: command.summary for name, command in COMMANDS.items()}


def test_a_list_of_commands_imports_none_of_them() -> None:
    """Would catch a `--help` for which settings, registry and pydantic are loaded: half a second each time."""
    code = (
        "import sys\nfrom cookhouse.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
        "print([name for name in ('pydantic', 'chz', 'numpy', 'cookhouse.settings') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("words", [(), ("checkpoints",), ("runs",)])
def test_help_says_of_each_command_a_whole_sentence(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*words, "--help") == 0
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]


def test_runs_are_listed_without_the_libraries_that_train() -> None:
    # Catches a list that takes three seconds, two of them for torch and the SDK.
    code = "import sys, cookhouse.cli.runs.summary; print({'torch', 'tinker'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_a_recipe_is_a_module_to_run() -> None:
    words = [sys.executable, "-W", "error", "-m", "cookhouse.recipes.supervised", "batchsize=3"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown setting of recipe supervised 'batchsize'; did you mean batch_size")


def test_a_logged_warning_is_one_line_and_a_logged_exception_is_left_to_its_error() -> None:
    code = (
        "import logging\nfrom cookhouse.cli.verbosity import show_logs\nshow_logs({})\n"
        "log = logging.getLogger('x')\nlog.warning('slow')\nlog.info('quiet')\n"
        "try: 1 / 0\nexcept ZeroDivisionError: log.exception('broken')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "warning: slow\n"


STREAMS = """
import os, sys
from cookhouse.cli.main import open_closed_streams
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
