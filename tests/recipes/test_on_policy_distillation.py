"""The recipes on_policy_distillation and multi_teacher_distillation from config to result, over the fake service."""

import html
import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import tinker
from tests.recipes.events import Events

from cookhouse.adapters import Adapters
from cookhouse.errors import InputError, ServiceError
from cookhouse.recipes import dry_run, find_recipe, run_async
from cookhouse.recipes.on_policy_distillation import Config
from cookhouse.rl import GroupFailedError
from cookhouse.telemetry import Event, read_metrics
from cookhouse.training import FakeSamplingClient, FakeService
from cookhouse.workflows import on_policy_workflow

pytestmark = pytest.mark.anyio

MakeConfig = Callable[..., Config]


@pytest.fixture
def make_config(tmp_path: Path) -> MakeConfig:
    rows = [{"question": f"Compute {n} + 1.", "answer": str(n + 1), "skill": "add"} for n in range(16)]
    for name, some in (("train", rows[:12]), ("test", rows[12:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))

    def make(**changes: Any) -> Config:
        settings: dict[str, Any] = {
            "teacher_model": "cookhouse/tiny",
            "dataset_path": str(tmp_path / "train.jsonl"),
            "test_path": str(tmp_path / "test.jsonl"),
            "log_path": str(tmp_path / "run"),
            "batch_size": 3,
            "group_size": 2,
            "max_steps": 6,
            "num_epochs": 2,
            "learning_rate": 0.1,
            "save_every": 2,
        }
        return Config(**{**settings, **changes})

    return make


async def run(config: Config | Mapping[str, Any], service: FakeService, *sinks: Events, **ports: Any) -> Any:
    adapters = Adapters(service=service.connect, sinks=[*sinks], **ports)
    return await run_async("on_policy_distillation", config, adapters=adapters)


def trained(folder: Path) -> list[dict[str, Any]]:
    """What was trained, step by step, without times."""
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if "teacher_kl" in row]
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in rows]


async def test_a_run_comes_nearer_to_its_teacher_and_tells_how_near(make_config: MakeConfig) -> None:
    service, events = FakeService(), Events()
    result = await run(
        make_config(teacher_model="cookhouse/tiny-arithmetic", learning_rate=0.01, metrics="all"), service, events
    )
    rows = trained(result.summary.folder)
    assert len(rows) == 6
    assert abs(rows[-1]["teacher_kl"]) < abs(rows[0]["teacher_kl"])
    assert {"teacher_kl/arithmetic", "teacher_kl_at/0000"} <= rows[0].keys()
    assert result.state.distillation_metrics["teacher_kl"] == rows[-1]["teacher_kl"]
    assert result.state.rollout_metrics["num_trajectories"] == 6
    assert result.state.ppo_metrics["policy_loss"] == rows[-1]["optim/policy_loss"]
    assert result.state.eval_results["accuracy"] == result.metrics["test/env/all/correct"]
    assert events.names.count("distillation.step") == events.names.count("training.step") == 6
    assert result.summary.samples[0].teacher is not None
    page = (result.summary.folder / "report.html").read_text()
    assert "the teacher" in page
    assert "teacher_kl" in page
    asked = {call.kind for call in service.calls}
    assert "compute_logprobs" in asked


async def test_ctrl_c_and_a_resume_give_the_run_that_was_not_disturbed(make_config: MakeConfig, tmp_path: Path) -> None:
    # Catches a teacher that is the weights at the resume, and groups that are sampled with other seeds.
    whole = await run(make_config(log_path=str(tmp_path / "whole")), FakeService())

    def press(event: Event) -> None:
        if event.name == "distillation.step" and event.step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    service = FakeService()
    stopped = await run(make_config(), service, Events(press))
    assert stopped.summary.is_interrupted
    assert 3 <= stopped.summary.num_steps < 6
    later = FakeService(states=service.states)
    resumed = await run(make_config(behavior_if_log_dir_exists="resume"), later)
    assert trained(resumed.summary.folder) == trained(whole.summary.folder)
    assert resumed.state.teacher_results == whole.state.teacher_results


async def test_a_teacher_at_another_service_is_asked_there_and_let_go(make_config: MakeConfig) -> None:
    own, other = FakeService(), FakeService()
    await run(make_config(), own, teacher=other.connect)
    assert "compute_logprobs" not in {call.kind for call in own.calls}
    assert "compute_logprobs" in {call.kind for call in other.calls}
    assert (own.closed_with, other.closed_with) == ("success", "success")


async def test_a_group_that_fails_with_the_teacher_is_counted_and_the_run_goes_on(make_config: MakeConfig) -> None:
    # Catches a failure that ends the run while the teacher's other groups go on behind it.
    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("sample", 1):
            raise tinker.APIConnectionError(message="gone", request=httpx.Request("POST", "http://service"))

    events = Events()
    result = await run(make_config(), FakeService(gate=gate), events)
    assert result.summary.num_steps == 6
    assert result.metrics["teacher/rollouts/groups_failed"] == 1
    assert result.metrics["teacher/env/all/total_groups"] == 3
    (warning,) = (event for event in events.all if event.name == "run.warning")
    assert "1 of the 4 held-out groups failed with the teacher" in warning.text["text"]
    assert warning.text["text"] in html.unescape((result.summary.folder / "report.html").read_text())


async def test_a_teacher_that_fails_on_everything_ends_the_run(make_config: MakeConfig) -> None:
    async def gate(kind: str, number: int) -> None:
        if kind == "sample" and number < 4:
            raise tinker.APIConnectionError(message="gone", request=httpx.Request("POST", "http://service"))

    with pytest.raises(GroupFailedError, match="gone"):
        await run(make_config(), FakeService(gate=gate))


async def test_a_run_teaches_another(make_config: MakeConfig, tmp_path: Path) -> None:
    service = FakeService()
    await run(make_config(log_path=str(tmp_path / "first")), service)
    result = await run(make_config(teacher_model=str(tmp_path / "first")), service)
    assert result.summary.num_steps == 6
    other = make_config(teacher_model=str(tmp_path / "first"), renderer_name="role_colon", log_path=str(tmp_path / "x"))
    with pytest.raises(InputError, match="trained in the chat format human_ai, and the student writes role_colon"):
        await run(other, service)
    assert not (tmp_path / "x").exists()


async def test_a_teacher_of_another_vocabulary_is_refused_before_anything_is_opened(
    make_config: MakeConfig, shared: Path, tmp_path: Path
) -> None:
    service = FakeService()
    other = next(path for path in sorted((shared / "tokenizers").iterdir()) if (path / "tokenizer.json").is_file())
    with pytest.raises(InputError, match=r"has another vocabulary than cookhouse/tiny: [\d,]+ tokens and not 2,04"):
        await run(make_config(teacher_model=str(other)), service)
    assert service.calls == []
    assert not (tmp_path / "run").exists()


async def test_a_teacher_that_gives_no_logprobs_is_refused_before_anything_is_trained(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(self: FakeSamplingClient, prompt: tinker.ModelInput) -> list[float | None]:
        del self
        return [None] * prompt.length

    monkeypatch.setattr(FakeSamplingClient, "compute_logprobs", nothing)
    service = FakeService()
    with pytest.raises(ServiceError, match="the teacher cookhouse/tiny gave no logprob"):
        await run(make_config(), service)
    assert "forward_backward" not in {call.kind for call in service.calls}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"teacher_model": "a,b,c"}, "names 3 teachers, and env 1 environments"),
        ({"teacher_model": " , "}, "names no teacher"),
        ({"teacher_coefs": "1,2"}, "there must be one above 0 for each of cookhouse/tiny"),
        ({"teacher_kl_coef": 0.0}, "teacher_kl_coef is 0.0; it must be a number above 0"),
    ],
)
async def test_settings_that_cannot_be_are_refused(
    make_config: MakeConfig, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        await run(make_config(**settings), FakeService())


async def test_each_environment_has_its_teacher(tmp_path: Path) -> None:
    config = {
        "env": "arithmetic,prompts",
        "batch_size": 4,
        "num_eval": 4,
        "max_steps": 2,
        "log_path": str(tmp_path / "run"),
        "teacher_coefs": "1,0.5",
    }
    adapters = Adapters(service=FakeService().connect, sinks=[])
    result = await run_async("multi_teacher_distillation", config, adapters=adapters)
    assert [(each.name, each.tag, each.coef) for each in result.state.named] == [
        ("cookhouse/tiny-arithmetic", "arithmetic", 1.0),
        ("cookhouse/tiny-chat", "prompts", 0.5),
    ]
    assert {"teacher_kl/arithmetic", "teacher_kl/prompts"} <= trained(result.summary.folder)[0].keys()


def test_a_dry_run_names_the_teachers(make_config: MakeConfig) -> None:
    plan = dry_run("multi_teacher_distillation", {})
    assert plan.facts["teacher"] == "cookhouse/tiny-arithmetic for arithmetic; cookhouse/tiny-chat for prompts"
    assert dry_run("on_policy_distillation", make_config()).facts["teacher"] == "cookhouse/tiny"


def test_the_stages_have_their_names() -> None:
    described = on_policy_workflow(Config(), lambda _: None).describe()  # type: ignore[arg-type,return-value]
    names = [line.split(" ")[-1].rstrip("?") for line in described.splitlines()]
    for stage in (
        *("init_session", "init_tokenizer", "init_teacher", "build_distillation_dataset", "get_distillation_batch"),
        *("teacher_inference", "build_distill_datums", "distillation_forward_backward", "log_distillation_metrics"),
        *("save_final", "cleanup_teacher", "cleanup"),
    ):
        assert stage in names, described


def test_defaults_of_other_models_are_those_of_the_field() -> None:
    config = find_recipe("on_policy_distillation").config_class(model_name="Qwen/Qwen3-8B-Base")
    found = (config.teacher_model, config.env, config.lora_rank, config.learning_rate, config.lr_schedule)
    assert found == ("Qwen/Qwen3-8B", "deepmath", 128, 1e-4, "constant")
    assert (config.group_size, config.batch_size, config.max_tokens, config.loss_fn) == (
        4,
        1024,
        4096,
        "importance_sampling",
    )
