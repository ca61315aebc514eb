"""The recipes off_policy_distillation and prompt_distillation from config to result, over the fake service."""

import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import chz
import pytest
import tinker
from tests.recipes.events import Events

from cookhouse.adapters import Adapters
from cookhouse.errors import InputError
from cookhouse.models.hyperparams import get_lr
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.recipes import dry_run, find_recipe, run_async
from cookhouse.recipes.off_policy_distillation import Config
from cookhouse.telemetry import Event, read_metrics
from cookhouse.training import FakeSamplingClient, FakeService, FakeTrainingClient
from cookhouse.workflows import off_policy_workflow

pytestmark = pytest.mark.anyio

MakeConfig = Callable[..., Config]


def says(text: str) -> list[int]:
    return [*get_tokenizer("cookhouse/tiny").encode(text, add_special_tokens=False)]


def teacher(theta: Any, prompt_T: Sequence[int], chance: Any) -> Sequence[int]:  # noqa: ARG001
    """Says what it is asked to; to every third prompt nothing, and to another third it does not come to an end."""
    asked = get_tokenizer("cookhouse/tiny").decode(prompt_T).rpartition("say ")[2].split("\n")[0]
    ends = {0: f" it is {asked}\n", 1: "\n", 2: f" it is {asked}" * 20}
    return says(ends[int(asked) % 3])


def good(theta: Any, prompt_T: Sequence[int], chance: Any) -> Sequence[int]:  # noqa: ARG001
    asked = get_tokenizer("cookhouse/tiny").decode(prompt_T).rpartition("say ")[2].split("\n")[0]
    return says(f" it is {asked}{chance.integers(10)}\n")


@pytest.fixture
def make_config(tmp_path: Path) -> MakeConfig:
    for name, start, count in (("train", 0, 12), ("test", 20, 6)):
        rows = [{"prompt": f"say {n}"} for n in range(start, start + count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def make(**changes: Any) -> Config:
        settings: dict[str, Any] = {
            "teacher_model": "cookhouse/tiny",
            "dataset_path": str(tmp_path / "train.jsonl"),
            "test_path": str(tmp_path / "test.jsonl"),
            "log_path": str(tmp_path / "run"),
            "batch_size": 4,
            "num_epochs": 2,
            "max_tokens": 32,
            "learning_rate": 0.1,
            "save_every": 2,
        }
        return Config(**{**settings, **changes})

    return make


async def run(config: Config | Mapping[str, Any], service: FakeService, *sinks: Events, recipe: str = "") -> Any:
    adapters = Adapters(service=service.connect, sinks=[*sinks])
    return await run_async(recipe or "off_policy_distillation", config, adapters=adapters)


def trained(folder: Path) -> list[dict[str, Any]]:
    """What was trained, step by step, without times."""
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if "train/loss" in row]
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in rows]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tinker.Datum]:
    """Every datum that was trained on."""
    found: list[tinker.Datum] = []
    before = FakeTrainingClient.forward_backward

    def watch(self: FakeTrainingClient, data: list[tinker.Datum], *rest: Any) -> Any:
        found.extend(data)
        return before(self, data, *rest)

    monkeypatch.setattr(FakeTrainingClient, "forward_backward", watch)
    return found


async def test_a_failed_answer_never_becomes_training_data(make_config: MakeConfig, sent: list[tinker.Datum]) -> None:
    # Catches empty and cut answers that are trained on, and a refused request that is taken for an empty answer.
    async def gate(kind: str, number: int) -> None:
        if kind == "sample" and number == 5:
            raise tinker.RequestFailedError("out of memory", "r", tinker.types.RequestErrorCategory.Server)

    events = Events()
    result = await run(
        make_config(batch_size=12, num_epochs=1, num_eval=0), FakeService(answer=teacher, gate=gate), events
    )
    tokenizer = get_tokenizer("cookhouse/tiny")
    learned = []
    for datum in sent:
        weights, targets = (datum.loss_fn_inputs[name].to_numpy() for name in ("weights", "target_tokens"))
        learned.append(tokenizer.decode(targets[weights > 0].tolist()))
        assert set(datum.loss_fn_inputs) == {"weights", "target_tokens"}
    whole = {f" it is {n}\n" for n in (0, 3, 6, 9)}
    assert set(learned) <= whole
    [row] = trained(result.summary.folder)
    dropped = {name: value for name, value in row.items() if name.startswith("distill/dropped/")}
    assert set(dropped) == {"distill/dropped/cut", "distill/dropped/empty", "distill/dropped/request"}
    assert dropped["distill/dropped/request"] == 1
    assert (row["distill/samples"], row["distill/dropped"]) == (12, sum(dropped.values()))
    assert 12 - row["distill/dropped"] == len(learned)
    assert result.summary.after("distill/dropped") == row["distill/dropped"] / 12
    assert result.state.distillation_metrics["distill/dropped"] == row["distill/dropped"]
    assert events.names.count("distillation.step") == 1


async def test_a_step_of_which_all_failed_is_refused(make_config: MakeConfig) -> None:
    def mute(theta: Any, prompt_T: Sequence[int], chance: Any) -> Sequence[int]:  # noqa: ARG001
        return says("\n")

    with pytest.raises(InputError, match="all 4 answers of the teacher to the prompts of a step failed; the first: it"):
        await run(make_config(test_path=None), FakeService(answer=mute))


async def test_what_was_said_is_kept_or_asked_anew(make_config: MakeConfig, tmp_path: Path) -> None:
    asked = {}
    for samples in ("cached", "fresh"):
        service = FakeService(answer=good)
        config = make_config(teacher_samples=samples, log_path=str(tmp_path / samples), test_path=None)
        await run(config, service)
        asked[samples] = sum(call.kind == "sample" and call.phase == "submit" for call in service.calls)
    assert asked == {"cached": 12, "fresh": 24}
    assert len((tmp_path / "cached" / "teacher_samples.jsonl").read_text().splitlines()) == 3
    assert not (tmp_path / "fresh" / "teacher_samples.jsonl").exists()


@pytest.mark.parametrize("samples", ["cached", "fresh"])
async def test_ctrl_c_and_a_resume_give_the_run_that_was_not_disturbed(
    make_config: MakeConfig, tmp_path: Path, samples: str
) -> None:
    # Catches seeds that begin anew, and answers that are asked for again.
    whole = await run(make_config(log_path=str(tmp_path / "whole"), teacher_samples=samples), FakeService(answer=good))

    def press(event: Event) -> None:
        if event.name == "distillation.step" and event.step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    service = FakeService(answer=good)
    stopped = await run(make_config(teacher_samples=samples), service, Events(press))
    assert stopped.summary.is_interrupted
    later = FakeService(states=service.states, answer=good)
    resumed = await run(make_config(behavior_if_log_dir_exists="resume", teacher_samples=samples), later)
    assert trained(resumed.summary.folder) == trained(whole.summary.folder)


async def test_the_student_is_trained_without_the_teachers_prompt(
    make_config: MakeConfig, sent: list[tinker.Datum], tmp_path: Path
) -> None:
    asked: list[str] = []
    before = FakeSamplingClient.sample

    def watch(self: Any, prompt: tinker.ModelInput, *rest: Any) -> Any:
        asked.append(get_tokenizer("cookhouse/tiny").decode(prompt.to_ints()))
        return before(self, prompt, *rest)

    (tmp_path / "prompt.txt").write_text("A long rule about {braces}. The text: {text}")
    config = make_config(
        teacher_prompt=f"@{tmp_path / 'prompt.txt'}", answer_pattern=r"it is (\d)", num_epochs=1, num_eval=0
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeSamplingClient, "sample", watch)
        await run(config, FakeService(answer=lambda *_: says(" I find it is 7, I think\n")))
    assert asked[0].startswith("Human: A long rule about {braces}. The text: say ")
    tokenizer = get_tokenizer("cookhouse/tiny")
    for datum in sent:
        weights, targets = (datum.loss_fn_inputs[name].to_numpy() for name in ("weights", "target_tokens"))
        assert "rule" not in tokenizer.decode(datum.model_input.to_ints())
        assert tokenizer.decode(targets[weights > 0].tolist()) == " 7\n"
    assert len(sent) == 12


async def test_a_system_message_of_the_teachers_leaves_out_rows_with_their_own(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    rows = [{"prompt": "say 1"}, {"prompt": "say 2", "system": "Be brief."}]
    (tmp_path / "told.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = make_config(dataset_path=str(tmp_path / "told.jsonl"), test_path=None, teacher_prompt="Be polite.")
    result = await run(config, FakeService(answer=good))
    [question] = result.state.questions.train.questions
    tokenizer = get_tokenizer("cookhouse/tiny")
    assert tokenizer.decode(list(question.teacher_tokens)) == "System: Be polite.\nHuman: say 1\nAI:"
    assert tokenizer.decode(list(question.student_tokens)) == "Human: say 1\nAI:"
    assert any("1 rows have a system message of their own" in note for note in result.state.context.notes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"teacher_model": "a,b"}, "names several teachers; this run has one"),
        ({"teacher_prompt": " "}, "teacher_prompt is empty"),
        ({"teacher_prompt": "@nowhere.txt"}, "teacher_prompt=@nowhere.txt cannot be read"),
        ({"answer_pattern": "("}, "which is no regular expression"),
        ({"teacher_top_k": 4, "answer_pattern": "x"}, "leave out teacher_prompt and answer_pattern"),
    ],
)
def test_settings_that_cannot_be_are_refused(make_config: MakeConfig, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dry_run("off_policy_distillation", make_config(**settings))


def test_the_stages_have_their_names() -> None:
    described = off_policy_workflow(Config(), bundled="arithmetic").describe()
    names = [line.split(" ")[-1].rstrip("?") for line in described.splitlines()]
    for stage in (
        *("init_session", "init_tokenizer", "init_teacher", "build_distillation_dataset", "get_distillation_batch"),
        *("teacher_inference", "build_distill_datums", "distillation_forward_backward", "log_distillation_metrics"),
        *("save_final", "cleanup_teacher", "cleanup"),
    ):
        assert stage in names, described


def test_defaults_of_other_models_are_those_of_the_field() -> None:
    config = find_recipe("prompt_distillation").config_class(model_name="Qwen/Qwen3-8B")
    found = (config.learning_rate, config.num_epochs, config.batch_size, config.temperature, config.max_tokens)
    assert found == (get_lr("Qwen/Qwen3-8B"), 4, 128, 0.15, 1000), "the rate by its rule"
    assert config.load_checkpoint_path is None
    with pytest.raises(InputError, match=r"teacher_prompt is not set; .* or a case: polite, languages"):
        dry_run("prompt_distillation", chz.replace(config, dataset_path="mine.txt"))


async def test_most_likely_tokens_are_learned_where_they_are_asked_for(
    make_config: MakeConfig, sent: list[tinker.Datum]
) -> None:
    config = make_config(teacher_top_k=3, teacher_model="cookhouse/tiny-arithmetic", test_path=None)
    result = await run(config, FakeService(answer=good))
    assert {tuple(datum.loss_fn_inputs["target_tokens"].to_numpy().shape[1:]) for datum in sent} == {(3,)}
    rows = trained(result.summary.folder)
    assert rows[-1]["train/forward_kl"] < rows[0]["train/forward_kl"]


def test_a_teacher_has_to_be_named_unless_it_is_told_something_more() -> None:
    # Catches a student that learns what it says itself.
    with pytest.raises(InputError, match="teacher_model is not set; name a base model"):
        find_recipe("off_policy_distillation").workflow(Config(model_name="some/model", renderer_name="role_colon"))
