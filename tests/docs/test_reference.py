"""The reference has what the code has: settings, commands, public names, environment variables and metrics."""

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest
from scripts.docs.reference import PARTS, command_helps, filled_in
from scripts.docs.signatures import named, with_directives, with_signatures

import cookhouse
from cookhouse import Stage, algorithms, testing
from cookhouse.diagnosis import RULES
from cookhouse.recipes import config_fields, every_recipe
from cookhouse.telemetry import keys

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
NOT_EXPLAINED = re.compile(r"synthetic|^test/noop/|^time/group")


def page(name: str) -> str:
    return (REFERENCE / f"{name}.md").read_text(encoding="utf-8")


def first_cells(text: str) -> list[str]:
    """The names in the first column of the tables of a page."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def test_every_setting_of_every_recipe_is_in_the_page() -> None:
    sections = dict(section.partition("\n")[::2] for section in filled_in(page("settings")).split("\n## "))
    for recipe in every_recipe():
        named = re.findall(r"^\| `(\w+)` \|", sections[recipe.name], re.MULTILINE)
        assert named == [field.name for field in config_fields(recipe)]
    assert "Also `lr`." in sections["supervised"]


def test_every_command_is_in_the_page() -> None:
    helps = dict(command_helps())
    assert {"cookhouse", "cookhouse run", "cookhouse runs resume", "cookhouse render check"} <= helps.keys()
    assert all(text.startswith(f"Usage: {name} [OPTIONS]") for name, text in helps.items())
    assert "--temperature <float range>" in filled_in(page("command-line"))


def test_a_part_that_there_is_not_is_an_error() -> None:
    # Catches a misspelled mark, which a reader would see as nothing.
    with pytest.raises(KeyError, match="recepies"):
        filled_in("<!-- generated: recepies -->")
    assert PARTS.keys() == {
        "recipes",
        "settings",
        "commands",
        "metrics",
        "details",
        "diagnosis",
        "pair-losses",
        "policy-losses",
    }


def test_every_public_name_is_in_the_page() -> None:
    assert sorted(named(page("python"), "cookhouse")) == sorted({*cookhouse.__all__} - {"__version__"})
    assert {"ToolEnv", "tool", "ToolError"} == {*named(page("python"), "cookhouse.rl")}
    assert "automodule:: cookhouse.testing" in with_directives(page("python"))
    assert all(inspect.getdoc(getattr(testing, name)) for name in testing.__all__)


@pytest.mark.parametrize("path", [*REFERENCE.glob("*.md")], ids=lambda path: str(path.stem))
def test_signatures_are_those_of_the_code(path: Path) -> None:
    # Catches a parameter or a docstring that changed, where the page has what it was.
    text = path.read_text(encoding="utf-8")
    assert with_signatures(text) == text, "python -m scripts.docs.signatures writes them anew"


def test_a_page_that_is_read_as_it_is_has_signatures_and_no_directives() -> None:
    text = page("python")
    assert "{eval-rst}" not in text + page("algorithms")
    assert "def run(\n    recipe: Recipe[C] | str,\n" in text
    assert "    async def step(self, message: Message) -> MessageStepResult: ...\n" in text
    assert "CROSS_ENTROPY: Objective[Any] = Objective(" in page("algorithms")
    assert not re.search(r"^ *(@checked|def _\w+(?<!__init__|__call__)\()", text, re.MULTILINE)


def test_sphinx_has_directives_in_their_place() -> None:
    text = with_directives(page("python") + page("algorithms"))
    assert "signatures:" not in text
    for directive in ("autofunction:: run\n", "autoexception:: ToolError\n   :members:", "autoclass:: RunSettings\n.."):
        assert f".. {directive}" in text
    assert ".. autoclass:: PairAssembler\n   :members:\n   :special-members: __call__\n" in text
    assert ".. autodata:: CROSS_ENTROPY\n   :no-value:\n" in text


def test_every_name_of_an_algorithm_is_in_the_page() -> None:
    text = page("algorithms")
    documented = {*named(text, "cookhouse.algorithms"), *first_cells(text)}
    assert documented == {*algorithms.__all__} - {*cookhouse.__all__}


def test_every_stage_of_the_page_takes_what_it_says() -> None:
    rows = [line.split(" | ") for line in page("algorithms").splitlines() if line.startswith("| `")]
    stages = {row[0].split("`")[1]: re.findall(r"`(\w+)`", row[1]) for row in rows if len(row) == 3}
    assert stages == {name: [*each.reads] for name, each in vars(algorithms).items() if isinstance(each, Stage)}


def test_every_field_of_an_experiment_is_in_the_page() -> None:
    lines = page("experiment").splitlines()
    named = [line.split("`")[1] for line in lines if line.startswith("| `")]
    assert named == list(cookhouse.Experiment.model_fields)


def test_every_environment_variable_is_in_the_page() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("src/**/*.py"))
    read = set(re.findall(r"\bCOOKHOUSE_[A-Z_]+\b", source))
    named = {name for name in first_cells(page("environment-variables")) if name.startswith("COOKHOUSE_")}
    assert named == read


def explained() -> re.Pattern[str]:
    """What any metric that the page has looks like; words in capitals stand for others."""
    names = first_cells(page("metrics"))
    names += [name.replace("train/", "test/", 1) for name in names if name.startswith("train/")]
    names += [f"test/{name}" for name in names if name.startswith(("env/", "rollouts/"))]
    # Own figures of a service, an evaluator or an environment: only where nothing else says what a name is.
    patterns = [re.sub(r"[A-Z]{2,}", "[^/]+", name) for name in names]
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns if pattern not in _ANY))


_ANY = (r"train/[^/]+", r"test/[^/]+", r"optim/[^/]+")


def test_every_metric_with_a_name_in_the_code_is_in_the_page() -> None:
    # A name that ends in a slash is the beginning of several.
    named = [value for name, value in vars(keys).items() if name.isupper() and isinstance(value, str)]
    names = [f"{name}x" if name.endswith("/") else name for name in named]
    assert len(names) > 25
    assert not any(explained().fullmatch(name) for name in ("train/lossy", "optim/norm", "env/all/by_group/frac"))
    assert [name for name in names if not explained().fullmatch(name)] == []


def test_every_rule_of_diagnosis_is_in_the_page() -> None:
    # Catches a rule whose numbers the page lacks, and one that reads a metric which is not explained.
    text = filled_in(page("diagnosis"))
    assert [name for name in first_cells(text) if name in {rule.name for rule in RULES}] == [
        rule.name for rule in RULES
    ]
    assert not re.search(r"\{(threshold|steps)\}", text)
    read = {name for rule in RULES for name in rule.reads if not name.endswith("/")}
    assert [name for name in sorted(read) if not explained().fullmatch(name)] == []


RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "supervised": ("supervised", {"eval_every": 1, "num_eval": 4}),
    "pairs": ("dpo", {"eval_every": 1, "num_eval": 4}),
    "judged pairs": ("dpo", {"eval_every": 1, "num_eval": 4, "preference_model": "judge"}),
    "synchronous": ("rl_basic", {"kl_coef": 0.1, "compute_post_kl": True, "loss_fn": "ppo"}),
    "published": ("rl_basic", {"constant_reward_groups": "replace", "overlong_answers": "punish"}),
    "asynchronous": ("rl_basic", {"max_steps_off_policy": 1, "num_substeps": 2}),
    "games": ("self_play", {"num_eval": 2}),
}


@pytest.mark.parametrize("case", RUNS)
def test_every_metric_that_a_run_writes_is_in_the_page(case: str, tmp_path: Path) -> None:
    recipe, settings = RUNS[case]
    small = {"max_steps": 2, "batch_size": 2, "num_samples": 0, "metrics": "all", "log_path": str(tmp_path / "run")}
    groups = {} if recipe in ("supervised", "dpo") else {"group_size": 2, "num_eval": 2}
    cookhouse.run(recipe, {**small, **groups, **settings}, adapters=cookhouse.Adapters.noop())
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    written = {name for line in lines for name in json.loads(line)}
    assert {"step", "train/num_tokens", "optim/lr"} <= written
    assert [
        name for name in sorted(written) if not explained().fullmatch(name) and not NOT_EXPLAINED.search(name)
    ] == []
