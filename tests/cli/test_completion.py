"""What the shell is told when it asks for completions, and that it does not wait for it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

COOKHOUSE = [sys.executable, "-c", "import sys; sys.argv[0] = 'cookhouse'; from cookhouse.cli import main; main()"]
HEAVY = ("torch", "transformers", "tinker", "fastapi", "sqlalchemy", "rich.progress")


def completed(folder: Path, *words: str, shell: str = "bash") -> list[str]:
    """What bash is offered for the last of the words behind `cookhouse`."""
    line = " ".join(["cookhouse", *words])
    variables = {
        "_COOKHOUSE_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "\n".join(["cookhouse", *words]),
        "COMP_CWORD": str(len(words)),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run(COOKHOUSE, capture_output=True, text=True, check=True, env=variables, cwd=folder)
    assert done.stderr == ""
    return [word for word in done.stdout.split("\n") if word]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["ru"], ["run", "runs"]),
        (["run", "rl_"], ["rl_basic", "rl_loop"]),
        (["run", "superv"], ["supervised"]),
        (["run", "no_such"], []),
        (["run", "supervised", "lora_"], ["lora_rank="]),
        (["run", "dpo", "on_bad_row=sk"], ["on_bad_row=skip"]),
        (["run", "supervised", "--lora"], ["--lora-rank"]),
        (["describe", "supe"], ["supervised"]),
        (["runs", "show", "fi"], ["first-run"]),
        (["sample", "fi"], ["first-run"]),
        (["runs", ""], ["list", "show", "compare", "resume", "delete", "prune"]),
        (["render", ""], ["show", "check"]),
    ],
)  # fmt: skip
def test_commands_recipes_settings_and_runs_are_offered(tmp_path: Path, words: list[str], offered: list[str]) -> None:
    run = tmp_path / "runs" / "first-run"
    run.mkdir(parents=True)
    (run / "config.json").write_text(json.dumps({"recipe": "supervised", "config": {}}))
    (run / "run.json").write_text('{"launches": [{"started_at": "2026-05-01T12:00:00+00:00"}]}')
    assert completed(tmp_path, *words) == offered


@pytest.mark.parametrize(("shell", "offered"), [("zsh", '"supervised"'), ("fish", "supervised")])
def test_other_shells_are_answered_too(tmp_path: Path, shell: str, offered: str) -> None:
    assert any(offered in line for line in completed(tmp_path, "run", "superv", shell=shell))


def test_a_completion_loads_nothing_heavy(tmp_path: Path) -> None:
    # Catches a shell that hangs for seconds at each press of the key.
    seen = (
        f"import atexit\natexit.register(lambda: print([n for n in {HEAVY!r} if n in sys.modules], file=sys.stderr))\n"
    )
    code = f"import sys\n{seen}\nsys.argv[0] = 'cookhouse'\nfrom cookhouse.cli import main\nmain()"
    variables = {"_COOKHOUSE_COMPLETE": "complete_bash", "COMP_WORDS": "cookhouse\nrun\ndpo\nlo", "COMP_CWORD": "3"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=variables, cwd=tmp_path)
    assert done.stderr.strip() == "[]"
    assert "log_path=" in done.stdout
