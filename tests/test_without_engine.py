"""The client where the engine's packages are not installed: what works all the same, and what is refused with the
command that installs them. `.ci/client` tries the same in an environment that has none.
"""

import asyncio
import logging
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cookhouse.adapters import Adapters, EmbeddedEngine, ServiceAddress
from cookhouse.cli import main
from cookhouse.errors import InputError, NoServiceError
from cookhouse.extras import ENGINE_PACKAGES, has_engine, require_engine
from cookhouse.models.tokenizers import get_tokenizer, load_transformers
from cookhouse.naming import load
from cookhouse.recipes import dry_run, run_async
from cookhouse.recipes.dpo import Config as Pairs
from cookhouse.recipes.eval import base_model_of
from cookhouse.recipes.served import check_pair_loss
from cookhouse.runs.names import CONFIG_FILE
from cookhouse.service import offer
from cookhouse.training import CustomLoss, FakeService
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE, Checkpoint
from tests.recipes.pairs import config_maker, some

COMMAND = "install engine"
PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
HOSTED = ServiceAddress(base_url=None, api_key="tml-key")
OWN = ServiceAddress(base_url="http://127.0.0.1:9", api_key="tml-key")
PATH = "tinker://a/sampler_weights/final"


@pytest.fixture(autouse=True)
def without_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    get_tokenizer("cookhouse/tiny")  # transformers looks for torch once: for the other tests of this process, too
    for name in ENGINE_PACKAGES:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    for place in ("extras", "service.connection", "recipes.run_recipe", "recipes.eval", "cli.doctor"):
        monkeypatch.setattr(f"cookhouse.{place}.install_command", lambda extra: f"install {extra}")


def called(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit code, and what it said on stderr."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert isinstance(caught.value.code, int)
    return caught.value.code, capsys.readouterr().err


def run_with_service(folder: Path) -> Path:
    """A run that its own service on this machine keeps the weights of."""
    (folder / "service").mkdir(parents=True)
    (folder / "service/server.db").touch()
    (folder / CONFIG_FILE).write_text('{"config": {"model_name": "cookhouse/tiny", "renderer_name": "human_ai"}}')
    saved = Checkpoint(name="final", epoch=1, batch=0, step=2, final=True, state_path=None, sampler_path=PATH)
    (folder / CHECKPOINTS_FILE).write_text(saved.line + "\n")
    return folder


def test_the_client_has_at_most_sixteen_requirements_and_none_of_the_engines() -> None:
    """Would catch torch that comes back with every install, and an engine that lacks what it imports."""
    names = {kind: {re.split(r"[^\w-]", each)[0] for each in given} for kind, given in extras_and_base().items()}
    assert len(names["base"]) <= 16
    assert {name.replace("_", "-") for name in ENGINE_PACKAGES} <= names["engine"]
    assert not names["engine"] & names["base"]
    for kind in ("dev", "bench", "postgres", "ray"):
        assert "cookhouse[engine]" in PROJECT["optional-dependencies"][kind], f"{kind} is of no use without the engine"


def extras_and_base() -> dict[str, list[str]]:
    return {**PROJECT["optional-dependencies"], "base": PROJECT["dependencies"]}


def test_it_is_known_and_refused_by_name() -> None:
    assert not has_engine()
    with pytest.raises(InputError, match=r"^drawing needs the engine, .*\(no pyrage, torch\): install engine$"):
        require_engine("drawing", ["pyrage", "json", "torch"])
    require_engine("drawing", ["json"])


@pytest.mark.parametrize(
    "words",
    [
        ["serve"],
        ["serve", "--backup", "copy"],
        ["checkpoints", "export", "run", "out"],
        ["checkpoints", "import", "folder"],
        ["checkpoints", "push", "run", "me/it"],
        ["checkpoints", "info", "run"],
        ["checkpoints", "delete", "run", "--yes"],
        ["checkpoints", "list", "run/service"],
        ["checkpoints", "info", "tinker://nobody/weights/x", "--state-dir", "run/service"],
        ["run", "dpo", "pair_loss=kto", "--dry-run"],
        ["run", "supervised", "loss_fn=own.py:loss", "--dry-run"],
        ["eval", PATH.replace("/a/", "/b/"), "benchmark=arithmetic", "--dry-run"],
    ],
    ids=" ".join,
)
def test_a_command_that_needs_it_says_how_to_install_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str]
) -> None:
    """Would catch a traceback about a module, and a service that is said to have what lies on this machine."""
    run_with_service(tmp_path / "run")
    (tmp_path / "own.py").write_text("def loss(data, logprobs): ...\n")
    before = {*tmp_path.rglob("*")}
    code, said = called(capsys, *words)
    assert (code, said.count("\n")) == (2, 1), said
    assert COMMAND in said
    assert {path for path in tmp_path.rglob("*") if "__pycache__" not in str(path)} == before


def test_a_run_folder_answers_what_it_can(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = run_with_service(tmp_path / "runs" / "first")
    with pytest.raises(SystemExit) as caught:
        main(["checkpoints", "list", str(run)])
    assert caught.value.code == 0
    assert f"{PATH}" in capsys.readouterr().out
    assert base_model_of(PATH) == "cookhouse/tiny"


def test_the_service_names_the_base_model_of_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch weights that only a server on this machine could be asked about."""
    asked = []

    def told(*question: Any, json: Any) -> dict[str, str]:
        asked.append((*question, json["tinker_path"]))
        return {"base_model": "some/model"}

    monkeypatch.setattr("cookhouse.training.clients.client.server_json", told)
    monkeypatch.setenv("TINKER_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("TINKER_API_KEY", "tml-key")
    assert base_model_of(PATH) == "some/model"
    assert asked == [("http://127.0.0.1:9", "tml-key", "POST", "weights_info", PATH)]


def test_a_run_without_a_service_says_both_ways_on(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Would catch a server that is started, and dies of a module that it does not find."""
    for words in (["run", "supervised"], ["sample", "cookhouse/tiny", "hello"], ["chat"]):
        code, said = called(capsys, *words)
        service, engine = said.splitlines()
        assert code == 2
        assert "TINKER_API_KEY" in service
        assert COMMAND in engine
    assert not [*tmp_path.iterdir()]
    with pytest.raises(NoServiceError):
        asyncio.run(run_async("supervised", adapters=Adapters(service=EmbeddedEngine())))


def test_a_dry_run_leaves_the_check_of_the_base_model_out_and_says_so() -> None:
    config = {"num_eval": 0, "batch_size": 1, "dataset_path": [{"prompt": "say 1", "completion": "1 is said"}]}
    plan = dry_run("supervised", config)
    assert [note for note in plan.notes if COMMAND in note]
    elsewhere = dry_run("supervised", config, adapters=Adapters(service=FakeService().connect))
    assert not [note for note in elsewhere.notes if COMMAND in note]


def test_doctor_names_it_and_where_runs_train(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def doctor() -> tuple[Any, str]:
        with pytest.raises(SystemExit) as caught:
            main(["doctor"])
        return caught.value.code, " ".join(capsys.readouterr().out.split())

    code, said = doctor()
    assert code == 1
    assert "engine not installed: runs train at a service -> install engine" in said
    assert "runs train nowhere: " in said
    monkeypatch.setenv("TINKER_API_KEY", "tml-key")
    code, said = doctor()
    assert code == 0
    assert "runs train at the hosted service" in said


@pytest.mark.parametrize(
    ("pair_loss", "service", "offered", "is_refused"),
    [
        ("dpo", OWN, ("dpo", "ipo"), False),
        ("dpo", OWN, (), True),
        ("dpo", OWN, None, False),  # it does not answer: what it lacks is not known
        ("dpo", HOSTED, (), True),
        ("orpo", HOSTED, (), True),
        ("kto", OWN, ("dpo",), True),
        ("kto", HOSTED, (), True),
        ("dpo", None, (), False),  # the engine would compute it, and is refused itself
        ("kto", None, (), True),
    ],
)
def test_a_loss_over_pairs_is_refused_where_the_service_leaves_it_to_torch(
    monkeypatch: pytest.MonkeyPatch, pair_loss: str, service: Any, offered: Any, is_refused: bool
) -> None:
    """Would catch a run that is refused although the service computes its loss, and one that dies in its first step."""
    monkeypatch.setattr(offer, "_ask_pair_losses", lambda *_: offered)
    found = ""
    try:
        check_pair_loss(Pairs(pair_loss=pair_loss), service)
    except InputError as error:
        found = str(error)
    assert (f"pair_loss={pair_loss}, which" in found and COMMAND in found) is is_refused


async def no_session(folder: Path) -> list[str]:
    """What a service was asked by a run over pairs that it is to be refused."""
    service = FakeService()
    config = config_maker(folder, some(0, 8), some(20, 2))()
    with pytest.raises(InputError, match="pair_loss=dpo, which the service does not compute, needs the engine"):
        await run_async("dpo", config, adapters=Adapters(service=service.connect, sinks=[]))
    return [call.kind for call in service.calls]


def test_no_session_is_opened_for_a_loss_that_cannot_be_computed(tmp_path: Path) -> None:
    assert "create_model" not in asyncio.run(no_session(tmp_path))
    assert not (tmp_path / "run").exists()


def test_a_loss_of_ones_own_is_refused_and_so_is_a_module_that_imports_torch(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=COMMAND):
        CustomLoss(function=lambda data, logprobs: (logprobs[0].sum(), {}))  # noqa: ARG005
    own = tmp_path / "with_torch.py"
    own.write_text("import torch\nloss = 1\n")
    with pytest.raises(InputError, match=rf"with_torch\.py, which imports torch, needs the engine.*{COMMAND}"):
        load(f"{own}:loss")


@pytest.mark.parametrize(
    ("text", "is_shown"), [("PyTorch was not found. Models won't be available", False), ("a tokenizer is odd", True)]
)
def test_what_transformers_says_of_torch_is_not_shown(text: str, is_shown: bool, caplog: Any) -> None:
    load_transformers()
    logger: Callable[[str], None] = logging.getLogger("transformers").warning
    monitor = logging.getLogger("transformers")
    monitor.addHandler(caplog.handler)
    try:
        logger(text)
    finally:
        monitor.removeHandler(caplog.handler)
    assert bool(caplog.records) is is_shown
