"""Settings of a user's own recipe: its weights are found and served, and nothing that it does not read is accepted."""

import json
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import chz
import pytest
from tests.runs.kit import make_run

from cookhouse.adapters import Adapters
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.recipes import Recipe, make_config, run
from cookhouse.registry import Artifact, NewModel
from cookhouse.registry.sqlite import SqliteRegistry
from cookhouse.settings import NamesWeights, RunSettings, SupervisedSettings, TrainingSettings, facts, read_if
from cookhouse.training import FakeService
from cookhouse.workflows import supervised_workflow


@chz.chz
class Own(SupervisedSettings):
    critic_model: str | None = chz.field(default=None, doc="", metadata=facts(weights=NamesWeights(several=True)))
    tracker: str = chz.field(default="", doc="", metadata=facts(free_on_resume=True))
    tone: str = chz.field(default="", doc="")
    strength: float = chz.field(default=1.0, doc="", validator=read_if(lambda config: config.tone, "with tone"))


@chz.chz
class Louder(Own):
    """A bare default, which leaves out the checks of the field above."""

    strength: float = 2.0
    warmup_steps: int | None = None


OWN = Recipe(name="own", description="", config_class=Own, workflow=supervised_workflow)
LOUDER = replace(OWN, name="louder", config_class=Louder)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL", "COOKHOUSE_REGISTRY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def small(tmp_path: Path) -> dict[str, Any]:
    rows = [{"prompt": f"say {n}", "completion": str(n)} for n in range(4)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"dataset_path": "rows.jsonl", "max_steps": 1, "num_eval": 0, "num_samples": 0, "log_path": "runs/own"}


def test_its_weights_are_found_and_pinned(small: dict[str, Any]) -> None:
    """Catches a critic that is another one when the run is resumed, or that is no weights at all."""
    first = make_run(Path("runs/first"), saved=["tinker://s/weights/1"])
    saved = json.loads((first / "checkpoints.jsonl").read_text()) | {"sampler_path": "tinker://s/sampler_weights/1"}
    (first / "checkpoints.jsonl").write_text(json.dumps(saved) + "\n")
    registry = SqliteRegistry(Path("runs/registry.db"))
    registry.register(NewModel(name="sums", base_model="cookhouse/tiny", artifact=Artifact(path="tinker://x")))
    names = "first,sums@1,cookhouse/tiny-chat"
    config = make_config(OWN, {**small, "critic_model": names})
    assert config.critic_model == f"{first},sums@1,cookhouse/tiny-chat"
    assert make_config(OWN, Own(critic_model=names)).critic_model == config.critic_model
    run(OWN, {**small, "critic_model": "first"}, adapters=Adapters.noop())
    record = json.loads(Path("runs/own/config.json").read_text())
    assert (record["config"]["critic_model"], record["weights"]) == (str(first), [str(first)])
    with pytest.raises(InputError, match="unknown registered model 'other'"):
        run(OWN, {**small, "critic_model": "other@1", "log_path": "runs/b"}, adapters=Adapters.noop())


def test_its_base_models_are_served(small: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an engine that is not told of the critic, and refuses it in the middle of the run."""
    asked: dict[str, Any] = {}

    @asynccontextmanager
    async def no_connection(_: Any, **how: Any) -> Any:
        asked.update(how)
        raise InputError("that is enough")
        yield

    monkeypatch.setattr("cookhouse.service.connection.open_connection", no_connection)
    make_run(Path("runs/first"), saved=["tinker://s/weights/1"])
    Path("runs/first/service").mkdir()
    critics = "Qwen/Qwen3-8B,cookhouse/tiny-arithmetic,first"
    with pytest.raises(InputError, match="that is enough"):
        run(OWN, {**small, "critic_model": critics})
    assert asked["base_models"] == ["cookhouse/tiny", "Qwen/Qwen3-8B"]
    assert [folder.name for folder in asked["peft_folders"]] == ["arithmetic"]
    assert asked["read_state_dirs"] == [Path("runs/first/service")]


def test_what_it_says_is_free_may_change_on_a_resume(small: dict[str, Any]) -> None:
    service = FakeService()
    run(OWN, {**small, "tracker": "a"}, adapters=Adapters(service=service.connect))
    again = {**small, "behavior_if_log_dir_exists": "resume"}
    run(OWN, {**again, "tracker": "b"}, adapters=Adapters(service=service.connect))
    with pytest.raises(InputError, match="tone='soft', but the run in runs/own was started with ''"):
        run(OWN, {**again, "tone": "soft"}, adapters=Adapters(service=service.connect))


@pytest.mark.parametrize("recipe", [OWN, LOUDER])
def test_what_it_does_not_read_is_refused(recipe: Recipe[Any]) -> None:
    """Catches a bare default that takes the condition of its setting away."""
    for given in ({"strength": 3.0}, {"warmup_steps": 3}):
        message = f"{next(iter(given))}=.* would change nothing"
        with pytest.raises(InputError, match=message):
            make_config(recipe, given)
        with pytest.raises(InputError, match=message):
            make_config(recipe, recipe.config_class(**given))
    assert make_config(recipe, {"tone": "soft", "strength": 3.0}).strength == 3.0


@chz.chz
class Lean(TrainingSettings):
    """What its workflow reads, and nothing of how rewards become advantages."""

    pair_margin: float = chz.field(default=0.0, doc="How far apart two answers are.")


@pytest.mark.parametrize("spec", [RunSettings, TrainingSettings, SupervisedSettings, Lean])
def test_settings_of_another_algorithm_are_refused(spec: type[Any]) -> None:
    """Catches a recipe that takes `advantage=gae loss_fn=ppo clip_high=1.3` and does nothing with them."""
    recipe = replace(OWN, config_class=spec)
    for name, value in (("advantage", "gae"), ("clip_high", 1.3), ("kl_reference", "m"), ("dpo_beta", 0.1)):
        with pytest.raises(UnknownNameError, match=f"unknown setting of recipe own {name!r}"):
            make_config(recipe, {name: value})
