"""The recipe rl_basic through the fake service: what it reports, leaves behind, resumes and refuses."""

import json
import os
import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import chz
import pytest
import tinker
from tests.recipes.events import Events

from cookhouse.adapters import Adapters
from cookhouse.errors import CookhouseError, InputError
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.recipes import dry_run, find_recipe, run_async
from cookhouse.recipes.rl_basic import Config
from cookhouse.telemetry import Event, read_metrics
from cookhouse.training import FakeSamplingClient, FakeService, FakeTrainingClient

pytestmark = pytest.mark.anyio

MakeRLConfig = Callable[..., Config]


def pupil(theta: Any, prompt_T: Sequence[int], chance: Any) -> Sequence[int]:
    """Solves what it is asked more often the further it has been trained from its first weights."""
    tokenizer = get_tokenizer("cookhouse/tiny")
    a, sign, b = re.findall(r"(\d+) ([-+*]) (\d+)", tokenizer.decode(prompt_T))[-1]
    right = {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[sign]
    is_right = chance.random() < 0.2 + abs(theta).max() / 2
    answer: list[int] = tokenizer.encode(f" {right if is_right else right + 1}\n", add_special_tokens=False)
    return answer


@pytest.fixture
def make_rl_config(tmp_path: Path) -> MakeRLConfig:
    rows = [
        {"question": f"Compute {a} + {b}.", "answer": str(a + b), "skill": "add"}
        for a in range(10, 14)
        for b in range(4)
    ]
    for name, some in (("train", rows[:12]), ("test", rows[12:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))

    def make(**changes: Any) -> Config:
        settings = {
            "dataset_path": str(tmp_path / "train.jsonl"),
            "test_path": str(tmp_path / "test.jsonl"),
            "log_path": str(tmp_path / "run"),
            "batch_size": 3,
            "group_size": 4,
            "max_steps": 6,
            "num_epochs": 2,
            "learning_rate": 0.3,
            "save_every": 2,
        }
        return Config(**{**settings, **changes})

    return make


def rows(folder: Path) -> list[list[float]]:
    columns = (
        "step",
        "optim/policy_loss",
        "optim/grad_norm",
        "env/all/reward/total",
        "progress/epoch",
        "progress/batch",
    )
    return [[row[c] for c in columns] for row in read_metrics(folder / "metrics.jsonl") if "optim/policy_loss" in row]


async def test_a_run_reports_and_keeps_what_happened(make_rl_config: MakeRLConfig) -> None:
    events = Events()
    service = FakeService(answer=pupil)
    result = await run_async(
        "rl_basic", make_rl_config(eval_every=3), adapters=Adapters(service=service.connect, sinks=[events])
    )
    summary, folder = result.summary, result.summary.folder
    assert (summary.num_steps, summary.total_steps) == (6, 6)
    before, after = (get("test/env/all/reward/total") for get in (summary.before, summary.after))
    assert before is not None
    assert after is not None
    metrics = read_metrics(folder / "metrics.jsonl")
    assert [row["step"] for row in metrics if "test/env/all/reward/total" in row] == [0, 3, 6]
    assert [row[4:] for row in rows(folder)] == [[0, 0], [0, 1], [0, 2], [0, 3], [1, 0], [1, 1]], "epoch and batch"
    assert metrics[0]["env/all/total_episodes"] == 12
    assert metrics[0]["rollouts/lag_mean"] == 0
    assert metrics[0]["time/rollout_wait_seconds"] > 0
    assert "rollouts/lag_max" not in metrics[0], "no main metric"
    names = {path.name for path in (folder / "rollouts").iterdir()}
    assert {"000000.jsonl", "000005.html", "test-000000.html", "test-000006.html", "steps.jsonl"} <= names
    assert "Compute 1" in (folder / "rollouts" / "000000.html").read_text()
    assert summary.report == folder / "report.html"
    assert "env/all/reward/total" in (folder / "report.html").read_text()
    assert {"rl.rollout_complete", "rl.step", "training.step", "eval.complete"} <= set(events.names)
    assert summary.samples[0].prompt.startswith("Compute 1")
    spans = (folder / "trace.json").read_text()
    assert all(name in spans for name in ("do_rollout", "compute_advantages", "assemble_rl_batch", "ppo_update"))


async def test_a_run_says_how_long_it_will_take(make_rl_config: MakeRLConfig) -> None:
    events = Events()
    config = make_rl_config(max_steps=10, num_epochs=3)
    await run_async("rl_basic", config, adapters=Adapters(service=FakeService(answer=pupil).connect, sinks=[events]))
    assert events.names.index("run.estimate") > events.names.index("rl.step")


async def test_an_evaluation_is_spread_over_the_held_out_problems(make_rl_config: MakeRLConfig, tmp_path: Path) -> None:
    # Catches an evaluation on the first problems of a set, which may be the easy ones.
    asked = [{"question": f"Compute {number} + 1.", "answer": str(number + 1)} for number in range(10, 20)]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    result = await run_async(
        "rl_basic",
        make_rl_config(num_eval=4, max_steps=1),
        adapters=Adapters(service=FakeService(answer=pupil).connect),
    )
    assert [
        sample["prompt"] for sample in json.loads((result.summary.folder / "samples" / "000000.json").read_text())
    ] == [f"Compute {number} + 1." for number in (10, 12, 15, 17)]
    row = read_metrics(result.summary.folder / "metrics.jsonl")[0]
    assert row["test/env/all/total_groups"] == 4
    assert row["test/env/all/correct_n"] == 4
    assert 0 < row["test/env/all/correct_stderr"] < 0.5


async def test_another_temperature_is_warned_of_once(
    make_rl_config: MakeRLConfig, caplog: pytest.LogCaptureFixture
) -> None:
    # Catches ratios and a divergence that are silently those of two distributions.
    for temperature in (1.0, 0.7):
        config = make_rl_config(temperature=temperature, max_steps=3, behavior_if_log_dir_exists="delete")
        result = await run_async("rl_basic", config, adapters=Adapters(service=FakeService(answer=pupil).connect))
        said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert len(said) == (temperature != 1.0)
    assert said[0].startswith("temperature is 0.7: tokens are drawn from another distribution than the one")
    assert "temperature is 0.7" in (result.summary.folder / "logs.log").read_text()


DAPO: dict[str, Any] = {
    "advantage": "normalized",
    "clip_low": 0.8,
    "clip_high": 1.28,
    "num_substeps": 2,
    "reduction": "token_mean",
    "constant_reward_groups": "replace",
    "overlong_answers": "punish",
}


@pytest.mark.parametrize("settings", [{}, DAPO], ids=["plain", "dapo"])
async def test_ctrl_c_saves_and_resuming_repeats_the_run_to_the_bit(
    make_rl_config: MakeRLConfig, tmp_path: Path, settings: dict[str, Any]
) -> None:
    whole = await run_async(
        "rl_basic",
        make_rl_config(log_path=str(tmp_path / "whole"), **settings),
        adapters=Adapters(service=FakeService(answer=pupil).connect),
    )

    def press(event: Event) -> None:
        if event.name == "training.step" and event.step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    service = FakeService(answer=pupil)
    interrupted = await run_async(
        "rl_basic", make_rl_config(**settings), adapters=Adapters(service=service.connect, sinks=[Events(press)])
    )
    assert interrupted.summary.is_interrupted
    assert 3 <= interrupted.summary.num_steps < 6
    config = make_rl_config(behavior_if_log_dir_exists="resume", **settings)
    await run_async(
        "rl_basic", config, adapters=Adapters(service=FakeService(states=service.states, answer=pupil).connect)
    )
    assert rows(interrupted.summary.folder) == rows(whole.summary.folder)
    assert len({row[1] for row in rows(whole.summary.folder)}) == 6


async def test_a_run_goes_on_where_every_answer_was_cut_and_masked(make_rl_config: MakeRLConfig) -> None:
    # Catches an empty request, an optimizer step on no gradient, and figures of nothing.
    service = FakeService(answer=lambda *_: [5] * 9)
    settings = {"overlong_answers": "mask", "kl_coef": 0.1, "compute_post_kl": True, "reduction": "token_mean"}
    config = make_rl_config(num_eval=0, max_steps=2, advantage_normalization="batch", **settings)
    result = await run_async("rl_basic", config, adapters=Adapters(service=service.connect))
    assert {"forward", "forward_backward", "optim_step"}.isdisjoint(call.kind for call in service.calls)
    first, second = read_metrics(result.summary.folder / "metrics.jsonl")
    assert first["env/all/frac_truncated"] == second["env/all/frac_truncated"] == 1.0
    assert not {"optim/policy_loss", "optim/entropy", "optim/kl_reference"} & first.keys()
    [finding] = [each for each in result.summary.findings if each.name == "all_masked"]
    assert finding.title.endswith("overlong_answers=mask leaves them out: nothing is learned")


async def test_groups_of_one_learn_from_the_batch(
    make_rl_config: MakeRLConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Catches a batch that is one group: a single attempt would be compared with itself.
    sent: list[list[float]] = []
    submit = FakeTrainingClient.forward_backward

    def spy(client: FakeTrainingClient, data: list[tinker.Datum], *rest: Any) -> Any:
        sent.append([datum.loss_fn_inputs["advantages"].tolist()[-1] for datum in data])
        return submit(client, data, *rest)

    monkeypatch.setattr(FakeTrainingClient, "forward_backward", spy)
    config = make_rl_config(
        group_size=1, advantage="total_reward", advantage_normalization="batch", batch_size=6, num_eval=0, max_steps=1
    )
    await run_async("rl_basic", config, adapters=Adapters(service=FakeService(answer=pupil).connect))
    [advantages] = sent
    assert len(advantages) == 6
    assert min(advantages) < 0 < max(advantages)


@pytest.mark.parametrize(
    "mode", [{"num_minibatches": 3}, {"max_steps_off_policy": 2}, {"num_substeps": 3, "ppo_epochs": 2}]
)
async def test_the_other_modes_differ_only_in_their_settings(
    make_rl_config: MakeRLConfig, mode: dict[str, int]
) -> None:
    result = await run_async(
        "rl_basic", make_rl_config(**mode), adapters=Adapters(service=FakeService(answer=pupil).connect)
    )
    assert result.summary.num_steps == 6


async def test_a_penalty_is_against_the_base_model(make_rl_config: MakeRLConfig) -> None:
    # Catches a reference that follows the training, whose divergence would stay zero.
    service = FakeService(answer=pupil)
    result = await run_async("rl_basic", make_rl_config(kl_coef=0.1), adapters=Adapters(service=service.connect))
    found = [row["optim/kl_reference"] for row in read_metrics(result.summary.folder / "metrics.jsonl")[:6]]
    assert len(set(found)) == 6
    assert [call.kind for call in service.calls].count("create_sampling_client") == 2  # submitted, and finished


@pytest.mark.parametrize("settings", [{}, {"num_minibatches": 3}, {"constant_reward_groups": "remove"}])
async def test_the_advantages_recorded_and_shown_are_those_trained(
    make_rl_config: MakeRLConfig, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    # Catches advantages that are computed again for the page, without the penalty that was added to them.
    sent: list[float] = []
    submit = FakeTrainingClient.forward_backward

    def spy(client: FakeTrainingClient, data: list[tinker.Datum], *rest: Any) -> Any:
        for datum in data:
            inputs = {name: tensor.to_numpy() for name, tensor in datum.loss_fn_inputs.items()}
            sent.extend(inputs["advantages"][inputs["logprobs"] != 0].tolist())
        return submit(client, data, *rest)

    monkeypatch.setattr(FakeTrainingClient, "forward_backward", spy)
    config = make_rl_config(kl_coef=0.5, max_steps=1, num_eval=0, batch_size=6, **settings)
    result = await run_async("rl_basic", config, adapters=Adapters(service=FakeService(answer=pupil).connect))
    folder = result.summary.folder / "rollouts"
    groups = {row["number"]: row["group"] for row in lines(folder / "000000.jsonl")}
    recorded: list[float] = []
    rows = lines(folder / "advantages-000000.jsonl")
    for row in rows:
        for trajectory, turns in zip(groups[row["number"]]["trajectories"], row["advantages"], strict=True):
            [turn], [advantage] = trajectory["turns"], turns
            tokens = advantage if isinstance(advantage, list) else [advantage] * len(turn["tokens"])
            recorded += tokens
    assert recorded == [float(f"{value:.9g}") for value in sent]
    assert len(set(recorded)) > 12
    first = rows[0]["advantages"][0][0]
    page = (folder / "000000.html").read_text()
    assert f"advantage {sum(first) / len(first):.4g} ({min(first):.4g} to {max(first):.4g})" in page
    trained = len(rows)
    assert page.count(", advantage ") == 4 * trained
    constant = sum(len({t["turns"][0]["reward"] for t in group["trajectories"]}) == 1 for group in groups.values())
    assert trained == 6 - (constant if "constant_reward_groups" in settings else 0)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_the_divergence_after_a_step_is_of_the_weights_after_it(make_rl_config: MakeRLConfig) -> None:
    # Catches a look back at the weights before the step, which have no divergence, or one that leaves a gradient.
    found = []
    for post in (True, False):
        config = make_rl_config(compute_post_kl=post, behavior_if_log_dir_exists="delete")
        result = await run_async("rl_basic", config, adapters=Adapters(service=FakeService(answer=pupil).connect))
        found.append(read_metrics(result.summary.folder / "metrics.jsonl")[:6])
    with_post, without = found
    assert all(row["optim/kl_sample_train_v2"] < 1e-8 for row in with_post)
    assert all(row["optim/kl_sample_train_v2_post"] > 1e-6 for row in with_post)
    assert [row["optim/policy_loss"] for row in with_post] == [row["optim/policy_loss"] for row in without]


@pytest.mark.parametrize(
    ("kind", "failure", "expected", "place"),
    [
        ("forward_backward", KeyError("x"), "stage loop failed: KeyError: 'x'", "in stage ppo_update of step 2"),
        ("sample", RuntimeError("reset"), "RuntimeError: reset", "in stage do_rollout of step 1"),
    ],
)
async def test_a_failure_within_the_loop_names_its_stage_and_step(
    make_rl_config: MakeRLConfig, kind: str, failure: Exception, expected: str, place: str
) -> None:
    # Catches an exception of which a person only learns that something, somewhere in thousands of steps, went wrong.
    async def gate(asked: str, number: int) -> None:
        if (asked, number) == (kind, 1):
            raise failure

    with pytest.raises(CookhouseError, match=re.escape(expected)) as caught:
        await run_async(
            "rl_basic",
            make_rl_config(num_eval=0),
            adapters=Adapters(service=FakeService(answer=pupil, gate=gate).connect),
        )
    assert caught.value.__notes__ == [place]


def test_a_dry_run_counts_and_makes_nothing(make_rl_config: MakeRLConfig, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    plan = dry_run("rl_basic", make_rl_config())
    assert plan.facts["groups"] == "3 per step, 4 held out"
    assert plan.facts["steps"] == "6 in all, 4 per epoch"
    assert sorted(tmp_path.iterdir()) == before


def test_the_stages_are_described() -> None:
    text = find_recipe("rl_basic").workflow(Config()).describe()
    for name in (
        "build_env_group",
        "do_rollout",
        "compute_advantages",
        "assemble_rl_batch",
        "ppo_update",
        "log_rl_metrics",
    ):
        assert name in text


@pytest.mark.parametrize(
    ("at_service", "max_sequence_tokens", "kl_coef", "total"),
    [(None, None, 0.0, 2048), (300, None, 0.0, 300), (900, 250, 0.0, 250), (300, None, 0.1, 299), (300, 299, 0.1, 299)],
)
async def test_turns_are_bounded_by_what_the_model_and_the_service_take(
    make_rl_config: MakeRLConfig,
    monkeypatch: pytest.MonkeyPatch,
    at_service: int | None,
    max_sequence_tokens: int | None,
    kl_coef: float,
    total: int,
) -> None:
    """Catches rollouts that the service refuses, or cuts in silence, or that a reference has no room to score."""
    asked = set()
    sample = FakeSamplingClient.sample

    def watched(client: Any, prompt: Any, num_samples: int, sampling_params: Any) -> Any:
        asked.add(prompt.length + sampling_params.max_tokens)
        return sample(client, prompt, num_samples, sampling_params)

    monkeypatch.setattr(FakeSamplingClient, "sample", watched)
    service = FakeService(answer=pupil, max_context_tokens=at_service)
    config = make_rl_config(max_tokens=4096, max_sequence_tokens=max_sequence_tokens, kl_coef=kl_coef, max_steps=1)
    result = await run_async("rl_basic", config, adapters=Adapters(service=service.connect))
    assert asked == {total}
    told = "max_tokens is 4,096 and cookhouse/tiny takes 2,048 tokens"
    assert any(note.startswith(told) for note in result.state.context.notes)


async def test_a_resume_on_other_problems_is_refused(make_rl_config: MakeRLConfig, tmp_path: Path) -> None:
    service = FakeService(answer=pupil)
    await run_async("rl_basic", make_rl_config(max_steps=2), adapters=Adapters(service=service.connect))
    lines = (tmp_path / "train.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "train.jsonl").write_text("".join(lines[1:]))
    config = make_rl_config(max_steps=2, behavior_if_log_dir_exists="resume")
    with pytest.raises(InputError, match="it had 12 lines and has 11; the first that is different is line 1"):
        await run_async(
            "rl_basic", config, adapters=Adapters(service=FakeService(states=service.states, answer=pupil).connect)
        )


@pytest.mark.parametrize(
    "mode", [{}, {"num_minibatches": 4}, {"num_substeps": 3}, {"max_steps_off_policy": 2}], ids=str
)
async def test_the_last_problems_of_an_epoch_make_a_smaller_step(
    make_rl_config: MakeRLConfig, mode: dict[str, Any]
) -> None:
    """Catches problems that are never attempted, and a mode that waits for groups that do not exist."""
    config = make_rl_config(batch_size=5, **mode)
    result = await run_async("rl_basic", config, adapters=Adapters(service=FakeService(answer=pupil).connect))
    trained = [row for row in read_metrics(result.summary.folder / "metrics.jsonl") if "optim/policy_loss" in row]
    assert [row["env/all/total_episodes"] for row in trained] == [20, 20, 8, 20, 20, 8]
    assert [row["progress/epoch"] for row in trained] == [0, 0, 0, 1, 1, 1]
    assert result.state.context.notes[-1] == "the last batch of an epoch has 2 groups, not 5"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"num_minibatches": 4}, "num_minibatches=4 times num_substeps=1"),
        ({"num_minibatches": 2, "max_steps_off_policy": 1}, "set only one of the two"),
        ({"temperature": 0.0}, "temperature is 0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"clip_low": 0.9, "loss_fn": "importance_sampling"}, "clip_low=0.9 would change nothing"),
        ({"dro_beta": 0.1}, "dro_beta=0.1 would change nothing: it is read by loss_fn=dro"),
        ({"gamma": 1.5}, "gamma is 1.5"),
        ({"kl_coef": float("inf")}, "kl_coef is inf"),
        ({"group_size": 1}, "group_size is 1"),
        ({"min_group_members": 5}, "min_group_members is 5, more than group_size=4"),
        ({"max_sequence_tokens": 1}, "max_sequence_tokens is 1"),
        ({"loss_fn": "ppo", "clip_low": 1.2, "clip_high": 0.8}, "clip_low=1.2 must be below clip_high=0.8"),
        ({"loss_fn": "dro", "dro_beta": -1.0}, "dro_beta is -1.0"),
        ({"kl_reference": "cookhouse/tiny"}, "it is read with kl_coef above 0, or with compute_kl=true"),
        ({"group_size": 1, "advantage": "total_reward", "constant_reward_groups": "remove"}, "would leave none"),
        ({"max_batches_drawn": 3}, "it is read by constant_reward_groups=replace"),
        ({"max_batches_drawn": 1, "constant_reward_groups": "replace"}, "max_batches_drawn is 1"),
        ({"overlong_answers": "mask", "overlong_cache_tokens": 2}, "it is read by overlong_answers=punish"),
        (
            {"overlong_answers": "punish", "overlong_cache_tokens": 9},
            "overlong_cache_tokens=9 is more than max_tokens=8",
        ),
        (
            {"loss_fn": "dro", "reduction": "token_mean"},
            "reduction=token_mean divides advantages, and part of loss_fn=dro",
        ),
        ({"advantage": "total_reward", "gamma": 0.5}, "it is read with advantage=gae"),
        ({"dataset_path": "/nowhere.jsonl"}, "nowhere.jsonl"),
    ],
)
async def test_settings_that_make_no_sense_are_refused(
    make_rl_config: MakeRLConfig, tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError, match=re.escape(reason)):
        await run_async("rl_basic", make_rl_config(**changes), adapters=Adapters(service=FakeService().connect))
    assert not (tmp_path / "run").exists()


def test_defaults_depend_on_the_model() -> None:
    tiny, other = Config(), chz.replace(Config(), model_name="Qwen/Qwen3-8B")
    assert tiny.renderer_name == "human_ai"
    assert (other.batch_size, other.group_size, other.learning_rate, other.max_tokens) == (128, 16, 4e-5, 256)
    assert chz.asdict(chz.replace(Config(), batch_size=4))["batch_size"] == 4
