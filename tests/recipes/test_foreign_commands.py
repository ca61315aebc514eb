"""Commands of the reference systems, as their users type them: each works, or is refused with what is missing."""

import importlib
import json
import runpy
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from cookhouse.cli import main
from cookhouse.errors import InputError
from cookhouse.recipes import every_recipe, find_recipe, recipe_of_module
from cookhouse.recipes.aliases import MODULES
from cookhouse.telemetry import read_metrics

SMALL = ("--adapters", "noop", "max_steps=1", "num_eval=2")
SMALL_GROUPS = ("group_size=2", *SMALL)


@pytest.fixture(autouse=True)
def _nobody_is_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL", "TINKER_CREDENTIAL_CMD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def code_of(words: Sequence[str]) -> int | str | None:
    with pytest.raises(SystemExit) as caught:
        main(list(words))
    return caught.value.code


@pytest.mark.parametrize(
    ("typed", "recipe", "settings"),
    [
        (
            "run :supervised --dataset HuggingFaceH4/no_robots --model meta-llama/Llama-3.1-8B -b 4",
            "supervised",
            {"dataset_path": "HuggingFaceH4/no_robots", "model_name": "meta-llama/Llama-3.1-8B", "learning_rate": 2e-4},
        ),
        ("run :dpo", "dpo", {"model_name": "cookhouse/tiny", "dataset_path": "bundled", "dpo_beta": 0.1}),
        ("run :preference --dpo-beta 0.2", "dpo", {"dpo_beta": 0.2}),
        ("run :sl_basic lora_rank=8", "supervised", {"lora_rank": 8}),
        ("run recipes.sl_basic", "supervised", {}),
        ("run recipes.chat_sl.train", "chat_sl", {}),
        ("run tinker_cookbook.recipes.chat_sl.train dataset=bundled", "chat_sl", {"dataset_path": "bundled"}),
        ("run recipes.preference.train", "dpo", {}),
        ("run recipes.preference.dpo.train", "dpo", {}),
        ("run recipes.rl_basic", "rl_basic", {}),
        ("run recipes.math_rl.train groups_per_batch=4", "math_rl", {"batch_size": 4}),
        ("run recipes.code_rl.train groups_per_batch=4", "code_rl", {"batch_size": 4}),
        ("run recipes.multiplayer_rl.twenty_questions.train batch_size=2", "twenty_questions", {"batch_size": 2}),
    ],
)
def test_a_command_of_theirs_runs(
    typed: str, recipe: str, settings: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches a name of theirs that is no longer understood, or means something else."""
    small = SMALL_GROUPS if recipe.endswith(("_rl", "rl_basic", "questions")) else SMALL
    assert code_of([*shlex.split(typed), *small, "log_path=run"]) == 0, capsys.readouterr().err
    record = json.loads(Path("run/config.json").read_text())
    assert record["recipe"] == recipe
    assert {name: record["config"][name] for name in settings} == settings


def test_rollouts_are_passes_of_the_loop(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a run that ends with the problems, of which there are fewer than passes."""
    typed = "run :code_rl --num-rollouts 3 groups_per_batch=2 clip_epsilon=0.2 env=:python_functions n_train_samples=2"
    small = ("--adapters", "noop", "num_eval=0", "group_size=2", "log_path=run")
    assert code_of([*shlex.split(typed), *small]) == 0, capsys.readouterr().err
    assert [row["step"] for row in read_metrics(Path("run/metrics.jsonl")) if "optim/lr" in row] == [0, 1, 2]
    settings = json.loads(Path("run/config.json").read_text())["config"]
    assert (settings["batch_size"], settings["loss_fn"], settings["clip_high"]) == (2, "ppo", 1.2)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (
            "run recipes.rubric.train",
            "recipes.rubric.train would be the recipe 'rubric', which cookhouse has not; it has",
        ),
        ("run :chat_sll", "unknown recipe 'chat_sll'; did you mean chat_sl"),
        *(
            (f"run {recipe} env=humaneval", "humaneval is no environment to train in: it evaluates; set evaluators=")
            for recipe in (":code_rl", ":rl")
        ),
        ("run :supervised --clip-epsilon 0.2", "no such option: --clip-epsilon"),
        ("run :supervised n_epoch=3", "unknown setting of recipe supervised 'n_epoch'; did you mean num_epochs"),
        ("run :dpo beta=0.1 dpo_beta=0.1", "beta is another name of dpo_beta, which is given as well; give it once"),
    ],
)
def test_what_is_missing_is_named_in_one_line(typed: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(shlex.split(typed)) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {said}")
    assert err.count("\n") == 1


def test_a_set_that_is_not_here_names_the_folder(capsys: pytest.CaptureFixture[str]) -> None:
    """Offline, as all tests are."""
    typed = "run :supervised --dataset HuggingFaceH4/no_robots --model cookhouse/tiny"
    assert code_of(shlex.split(typed)) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: HuggingFaceH4/no_robots is not on disk (looked in /")
    assert err.count("\n") == 1
    assert not list(Path.cwd().iterdir())


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("run.yaml", "batch_size: 8\nlearning_rate: [1\n", "line 3"),
        ("run.toml", "batch_size = 8\nlearning_rate = = 1\n", "line 2"),
        ("run.json", '{\n"batch_size": 8,,\n}', "line 2"),
    ],
)
def test_a_config_that_does_not_parse_names_file_and_line(
    name: str, text: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_text(text)
    assert code_of(["run", "supervised", "--config", name]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {name} cannot be read as a config: ")
    assert line in err
    assert err.count("\n") == 1


def test_modules_that_stand_for_recipes() -> None:
    assert recipe_of_module("recipes.chat_sl.train") == "chat_sl"
    assert recipe_of_module("cookhouse.recipes.chat_sl") == "chat_sl"
    assert recipe_of_module("supervised") is None
    assert recipe_of_module("my.recipes.chat_sl") is None
    assert recipe_of_module("recipes.py:NAME") is None
    with pytest.raises(InputError, match="would be the recipe 'rubric'"):
        find_recipe("recipes.rubric.train")


@pytest.mark.parametrize("module", MODULES)
def test_their_modules_are_there(module: str) -> None:
    """Catches a path that tinker-cookbook has no longer, or never had."""
    theirs = pytest.importorskip("tinker_cookbook", reason="needs tinker-cookbook, which `make` installs")
    root = Path(theirs.__file__).parent / "recipes" / module.replace(".", "/")
    assert module == "preference" or root.with_suffix(".py").is_file() or (root / "train.py").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*(recipe.name for recipe in every_recipe()), "sl_basic", "sl_basic_v2", "preference"])
def test_every_recipe_is_a_module_to_run(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"cookhouse.recipes.{name}", "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--model-name" in done.stdout


@pytest.mark.parametrize(
    ("module", "recipe"),
    [
        ("recipes.preference.train", "dpo"),
        ("recipes.preference.dpo.train", "dpo"),
        ("recipes.math_rl.train", "math_rl"),
        ("recipes.multiplayer_rl.guess_number.train", "textarena_rl"),
        ("recipes.distillation.on_policy_distillation", "on_policy_distillation"),
        ("eval.run_inspect_evals", "eval"),
    ],
)
def test_a_path_of_theirs_is_a_module_to_run(module: str, recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches `python -m cookhouse.recipes.preference.train`, which `cookhouse run` knows, without a module."""
    ran: list[Sequence[str]] = []
    monkeypatch.setattr("os.execv", lambda _, words: ran.append(words[3:]))
    monkeypatch.setattr(sys, "argv", ["theirs", "max_steps=1"])
    runpy.run_module(f"cookhouse.{module}", run_name="__main__")
    assert ran == [["run", recipe, "max_steps=1"]]
    assert find_recipe(f"tinker_cookbook.{module}").name == recipe


def test_a_module_that_there_is_not_is_still_missing() -> None:
    for name in ("typo", "typo.train", "math_rl.typo"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(f"cookhouse.recipes.{name}")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("eval first bench.jsonl", "eval first benchmark=bench.jsonl"),
        ("eval first gsm8k limit=3", "eval first benchmark=gsm8k"),
        ("eval tasks.py@sums", "eval WEIGHTS inspect=tasks.py@sums"),
        ("eval first a.csv arithmetic", "eval first benchmark=a.csv,arithmetic"),
    ],
)
def test_a_benchmark_where_weights_stand_is_answered_with_the_command(
    words: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(shlex.split(words)) == 2
    assert capsys.readouterr().err.rstrip("\n").endswith(meant)
