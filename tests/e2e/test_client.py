"""The client alone, installed without the engine in an environment of its own, against a server of this one:
`.ci/client` makes that environment and names its Python in COOKHOUSE_CLIENT.
"""

import os
import re
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.e2e.conftest import Cookhouse, exported_by
from tests.e2e.test_smoke import LIBRARIES, check
from tests.waiting import next_line

from cookhouse.extras import ENGINE_PACKAGES
from cookhouse.recipes import every_recipe

PYTHON = os.environ.get("COOKHOUSE_CLIENT", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="needs COOKHOUSE_CLIENT: `.ci/client`")

OWN_LOSS = """\
def likelihood(data, logprobs):
    import torch
    loss = -torch.cat(logprobs).sum()
    return loss, {}
"""
IMPORTS = """
import importlib, pkgutil, cookhouse
bad = []
for module in pkgutil.walk_packages(cookhouse.__path__, "cookhouse.", onerror=lambda name: None):
    if module.name.startswith(("cookhouse.engine", "cookhouse.server")) or module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] not in (
            "inspect_ai", "lm_eval", "mlflow", "opentelemetry", "tensorboard", "trackio", "wandb",
        ):
            bad.append((module.name, error.name))
print(bad)
"""
COMMAND = "-m pip install 'cookhouse[engine] @ file://"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    command = Cookhouse(tmp_path_factory.mktemp("serve"))
    yield exported_by(command.start("serve", "--port", "0", "--state-dir", "state"))
    command.close()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Cookhouse]:
    command = Cookhouse(tmp_path, PYTHON)
    yield command
    command.close()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, served: Mapping[str, str]) -> Cookhouse:
    """A folder with a run of the client's."""
    command = Cookhouse(tmp_path_factory.mktemp("client"), PYTHON)
    said(command, "run", "supervised", "max_steps=2", "num_eval=2", "lora_rank=4", "log_path=runs/first", env=served)
    return command


def said(command: Cookhouse, *words: str, env: Mapping[str, str] | None = None, stdin: str | None = None) -> str:
    done = command.run(*words, env=env, stdin=stdin)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PyTorch" not in done.stdout + done.stderr
    return done.stdout


def files_in(folder: Path) -> set[Path]:
    """But for what Python compiles."""
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}


def test_nothing_of_the_engine_is_installed(client: Cookhouse) -> None:
    """Would catch a requirement of the client's that brings torch along."""
    found = f"print([n for n in {ENGINE_PACKAGES!r} if find_spec(n) is not None])"
    assert client.python(f"from importlib.util import find_spec; {found}").stdout == "[]\n"


def test_every_module_of_the_client_is_imported(client: Cookhouse) -> None:
    """Would catch a module that loads what only the engine has. Modules of other extras are left out."""
    done = client.python(IMPORTS)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.mark.parametrize("name", [recipe.name for recipe in every_recipe()])
def test_a_recipe_trains(client: Cookhouse, served: Mapping[str, str], name: str) -> None:
    library = LIBRARIES.get(name)
    if library is not None and client.python(f"import {library}").returncode:
        done = client.run("run", name, env=served)
        assert f"cookhouse[{name.removesuffix('_rl')}]" in done.stderr
        return
    check(client, name, served, 120.0, served["TINKER_BASE_URL"], "cookhouse/tiny")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "dpo", "--dry-run"], "pairs"),
        (["run", "rl", "--dry-run"], "steps"),
        (["sample", "runs/first", "What is 2 + 3?"], ""),
        (["sample", "cookhouse/tiny", "What is 2 + 3?"], ""),
        (["eval", "runs/first", "benchmark=arithmetic", "limit=2", "max_tokens=8", "log_path=scores"], "arithmetic"),
        (["runs", "list"], "first"),
        (["runs", "show", "first"], "supervised"),
        (["report", "runs/first"], "report.html"),
        (["checkpoints", "list", "runs/first"], "tinker://"),
        (["models", "register", "sums", "runs/first"], "sums@1"),
        (["cluster", "list"], "worker"),
        (["describe", "supervised"], "batch_size"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_a_command_works(trained: Cookhouse, served: Mapping[str, str], words: list[str], expected: str) -> None:
    assert expected in said(trained, *words, env=served)


def test_chat_answers(trained: Cookhouse, served: Mapping[str, str]) -> None:
    assert said(trained, "chat", "runs/first", env=served, stdin="What is 2 + 3?\n")


def test_the_path_of_weights_is_enough_for_an_evaluation(trained: Cookhouse, served: Mapping[str, str]) -> None:
    """Would catch a base model that is only read from the files of a server on this machine."""
    listed = said(trained, "checkpoints", "list", "runs/first", env=served)
    found = re.search(r"tinker://\S+/sampler_weights/\S+", listed)
    assert found is not None
    elsewhere = Cookhouse(trained.folder / "elsewhere", PYTHON)
    elsewhere.folder.mkdir()
    assert said(elsewhere, "eval", found[0], "benchmark=arithmetic", "limit=1", "max_tokens=4", env=served)


def test_runs_are_viewed(trained: Cookhouse) -> None:
    page = trained.start("view", "--port", "0")
    while (found := re.search(r"http://\S+", line := next_line(page))) is None:
        assert line, "it has ended"
    with urllib.request.urlopen(found[0]) as answer:
        assert "first" in answer.read().decode()
    trained.close()


@pytest.mark.parametrize(
    "words",
    [
        ["serve"],
        ["checkpoints", "export", "runs/first", "adapter"],
        ["checkpoints", "import", "adapter"],
        ["run", "dpo", "pair_loss=kto"],
        ["run", "supervised", "loss_fn=own.py:likelihood"],
    ],
    ids=" ".join,
)
def test_what_needs_the_engine_is_refused(trained: Cookhouse, served: Mapping[str, str], words: list[str]) -> None:
    (trained.folder / "own.py").write_text(OWN_LOSS)
    before = files_in(trained.folder)
    done = trained.run(*words, env=served)
    assert done.returncode == 2, done.stdout + done.stderr
    assert COMMAND in done.stderr
    assert done.stderr.count("\n") == 1
    assert files_in(trained.folder) == before


def test_without_engine_key_and_address_both_ways_on_are_said(client: Cookhouse) -> None:
    done = client.run("run", "supervised")
    assert (done.returncode, done.stderr.count("\n")) == (2, 2)
    assert "TINKER_API_KEY" in done.stderr.splitlines()[0]
    assert COMMAND in done.stderr.splitlines()[1]
    assert not any(client.folder.iterdir())
    plan = said(client, "run", "supervised", "--dry-run")
    assert COMMAND in plan.replace("\n", " ")


def test_all_of_dpo_is_refused_at_the_hosted_service(client: Cookhouse) -> None:
    done = client.run("run", "dpo", "model_name=Qwen/Qwen3-8B", env={"TINKER_API_KEY": "tml-none"})
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "pair_loss=dpo, which the hosted service does not compute, needs the engine" in done.stderr
