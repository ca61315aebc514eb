"""Flags generated from a recipe's config."""

import re
from inspect import get_annotations
from pathlib import Path
from typing import Any, Literal

import pytest
import typer

from cookhouse.cli import main
from cookhouse.cli.help import in_short
from cookhouse.cli.options import MOST_USED_SETTINGS, Layers, layers_of, recipe_command
from cookhouse.errors import InputError
from cookhouse.recipes import config_fields, every_recipe, find_recipe, settle


def parse(*words: str) -> tuple[dict[str, Any], bool]:
    """What the command of the supervised recipe would be called with, all layers as one."""
    calls: list[tuple[dict[str, Any], bool]] = []
    app = typer.Typer()

    def keep(layers: Layers, dry_run: bool, adapters: str | None) -> None:
        assert adapters is None
        calls.append(({key: value for layer in layers.values() for key, value in layer.items()}, dry_run))

    app.command()(recipe_command(find_recipe("supervised"), keep))
    app(args=list(words), standalone_mode=False)
    [call] = calls
    return call


def test_a_flag_and_key_value_set_the_same() -> None:
    assert parse("--batch-size", "8", "--seed", "1") == parse("batch_size=8", "seed=1")
    assert parse("seed=1", "--batch-size", "8")[0] == {"batch_size": "8", "seed": "1"}


def test_short_flags() -> None:
    texts, dry_run = parse("-m", "M", "-d", "D", "-e", "2", "-b", "4", "-l", "1e-3", "-r", "8", "--dry-run")
    assert dry_run
    assert texts == {
        "model_name": "M",
        "dataset_path": "D",
        "num_epochs": "2",
        "batch_size": "4",
        "learning_rate": "1e-3",
        "lora_rank": "8",
    }


def test_a_value_may_hold_an_equals_sign_or_start_with_a_dash() -> None:
    assert parse("dataset_path=a=b.jsonl")[0] == {"dataset_path": "a=b.jsonl"}
    assert parse("--seed", "-1")[0] == {"seed": "-1"}


@pytest.mark.parametrize(
    ("settings", "flags", "message"),
    [
        (["seed=1"], {"seed": "2"}, "seed is given twice, as seed=1 and as --seed 2"),
        (["seed=1", "seed=1"], {}, "seed is given twice, as seed=1 and as seed=1"),
        (["=1"], {}, "'=1' is not a setting"),
        (["--=1"], {}, "is not a setting"),
    ],
)
def test_what_is_ambiguous_is_refused(settings: list[str], flags: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        layers_of(settings, (), flags)


def test_a_file_comes_first(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("seed: 3\nbatch_size: 4\n")
    layers = layers_of(["batch_size=8"], [tmp_path / "run.yaml"], {"lora_rank": "2"})
    assert list(layers) == [str(tmp_path / "run.yaml"), "key=value", "flag"]
    settled = settle(find_recipe("supervised"), layers)
    assert (settled.config.seed, settled.config.batch_size, settled.config.lora_rank) == (3, 8, 2)
    origins = {name: settled.origins[name] for name in ("seed", "batch_size", "lora_rank", "num_epochs")}
    assert list(origins.values()) == [str(tmp_path / "run.yaml"), "key=value", "flag", "default"]


def test_other_systems_names_are_flags_too() -> None:
    assert parse("--lr", "1e-3", "rank=4")[0] == {"lr": "1e-3", "rank": "4"}


def test_help_names_every_setting_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "supervised", "--help-all"])
    text = "".join(capsys.readouterr().out.split())  # a line may end behind a hyphen
    for field in config_fields(find_recipe("supervised")):
        assert f"--{field.name.replace('_', '-')}" in text
        said = field.doc if not field.default else f"{field.doc} [default: {field.default}]"
        assert "".join(said.split()) in text


def groups(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, list[str]]:
    """The flags in each group of a help, in their order."""
    with pytest.raises(SystemExit):
        main([*words, "--help-all"])
    found: dict[str, list[str]] = {}
    for line in capsys.readouterr().out.splitlines():
        if re.fullmatch(r"[A-Z].*:", line):
            found[line.removesuffix(":")] = flags = []
        elif flag := re.match(r"  (?:-\w, )?--([\w-]+)", line):
            flags.append(flag[1])
    return found


def test_help_has_what_matters_first_and_the_rest_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a help in which the learning rate stands somewhere among 70 settings."""
    told = groups(capsys, "run", "supervised")
    assert list(told)[:2] == ["Arguments", "Most used"]
    assert list(told)[-3:] == ["Run", "Other names", "Options of the command"]
    assert told["Most used"][:3] == ["model-name", "dataset-path", "test-path"]
    assert told["Most used"][-2:] == ["seed", "log-path"]
    assert "weight-decay" in told["Optimizer"]
    assert "pause-at-step" in told["Steps and checkpoints"]
    assert "dry-run" in told["Options of the command"]
    assert "lr" in told["Other names"]
    assert {"env", "group-size"} <= set(groups(capsys, "run", "rl")["Most used"])


def test_the_short_help_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a first sentence of a setting that most people set that is too long to be read in passing."""
    assert len(MOST_USED_SETTINGS) == 30
    for recipe in every_recipe():
        for field in config_fields(recipe):
            if field.name in MOST_USED_SETTINGS:
                assert len(in_short(field.doc).split()) <= 12, (recipe.name, field.name, in_short(field.doc))
    with pytest.raises(SystemExit):
        main(["run", "supervised", "--help"])
    told = capsys.readouterr().out
    assert "--lr-schedule" in told
    assert "--weight-decay" not in told
    assert re.search(r"\d+ more settings: .*run supervised --help-all", told)


OWN = """
import chz, cookhouse
from cookhouse import SupervisedSettings

@chz.chz
class Config(SupervisedSettings):
    longest_answer: int = chz.field(default=5, doc="Words.")
    label_averaging: str = "micro"

RECIPE = cookhouse.Recipe(
    name="brief", description="Brief.", config_class=Config, workflow=cookhouse.supervised_workflow
)
"""


def test_settings_of_a_recipe_of_ones_own_stand_in_a_group_before_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches the one setting that a user wrote, lost in the middle of the help; and another default taken for it."""
    (tmp_path / "brief.py").write_text(OWN)
    told = groups(capsys, "run", f"{tmp_path / 'brief.py'}:RECIPE")
    assert list(told)[:3] == ["Arguments", "Most used", "Of this recipe"]
    assert told["Of this recipe"] == ["longest-answer"]


def test_every_setting_of_ours_has_a_group() -> None:
    """Catches a class of settings that does not say under which title its settings stand in a help."""
    for recipe in every_recipe():
        own = {*get_annotations(recipe.config_class)}
        left_out = [field.name for field in config_fields(recipe) if not field.group and field.name not in own]
        assert not left_out, f"{recipe.name}: give the class of {', '.join(left_out)} a help_title"


@pytest.mark.parametrize(
    ("annotation", "word"),
    [(int, "INTEGER"), (float | None, "NUMBER"), (Literal["a", "b"], "a|b"), (str | None, "TEXT"), (dict, "VALUE")],
)
def test_what_a_setting_takes_in_one_word(annotation: Any, word: str) -> None:
    from cookhouse.cli.options import _metavar

    assert _metavar(annotation) == word
