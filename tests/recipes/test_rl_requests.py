"""What a reinforcement run asks of the service, as its settings say: losses, references, evaluations."""

import html
import json
import re
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tinker

from cookhouse.adapters import Adapters
from cookhouse.algorithms.rollouts import reinforcement, rollouts
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.recipes import run_async
from cookhouse.recipes.rl_basic import Config
from cookhouse.rl import RolloutLimits, RolloutStrategy, do_group_rollout, group_from_json
from cookhouse.runs import read_result
from cookhouse.settings import AdvantageSettings, UpdateSettings, part_of
from cookhouse.telemetry import read_metrics
from cookhouse.training import FakeSamplingClient, FakeService, FakeTrainingClient

pytestmark = pytest.mark.anyio

MakeConfig = Callable[..., Config]
HELD_OUT = ("Compute 90 + 0.", "Compute 91 + 0.", "Compute 92 + 0.")


def digit(theta: Any, prompt_T: Sequence[int], chance: Any) -> Sequence[int]:
    """One of ten answers, the likelier the fake weights have it."""
    tokenizer = get_tokenizer("cookhouse/tiny")
    answers: list[list[int]] = [tokenizer.encode(f" {n}\n", add_special_tokens=False) for n in range(10)]
    del theta, prompt_T
    return answers[int(chance.integers(10))]


def five_or_six(theta: Any, prompt_T: Sequence[int], chance: Any) -> Sequence[int]:
    """The right answer, or a wrong one."""
    del theta, prompt_T
    tokenizer = get_tokenizer("cookhouse/tiny")
    answer: list[int] = tokenizer.encode(f" {chance.integers(5, 7)}\n", add_special_tokens=False)
    return answer


@pytest.fixture
def make(tmp_path: Path) -> MakeConfig:
    rows = {"train": [f"Compute {number} + 0." for number in range(6)], "test": HELD_OUT}
    for name, questions in rows.items():
        lines = [json.dumps({"question": question, "answer": "5"}) for question in questions]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")

    def config(**changes: Any) -> Config:
        paths = {"dataset_path": str(tmp_path / "train.jsonl"), "test_path": str(tmp_path / "test.jsonl")}
        small = {"batch_size": 2, "group_size": 4, "max_steps": 3, "learning_rate": 0.3, "num_samples": 0}
        return Config(**{**paths, **small, "log_path": str(tmp_path / "run"), **changes})

    return config


@pytest.mark.parametrize(
    ("settings", "loss", "options"),
    [
        ({}, "importance_sampling", None),
        ({"loss_fn": "ppo"}, "ppo", None),
        (
            {"loss_fn": "ppo", "clip_low": 0.7, "clip_high": 1.3},
            "ppo",
            {"clip_low_threshold": 0.7, "clip_high_threshold": 1.3},
        ),
        ({"loss_fn": "gspo", "clip_high": 1.1}, "gspo", {"clip_high_threshold": 1.1}),
        ({"loss_fn": "dro", "dro_beta": 0.25}, "dro", {"beta": 0.25}),
    ],
)
async def test_the_loss_is_sent_with_its_options(
    make: MakeConfig,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    loss: str,
    options: dict[str, float] | None,
) -> None:
    # Catches a clip range or a β that only the metrics know of, while the service trains with its own.
    asked: list[tuple[str, Any]] = []
    submit = FakeTrainingClient.forward_backward

    def spy(client: FakeTrainingClient, data: list[tinker.Datum], loss_fn: str, config: Any = None) -> Any:
        asked.append((loss_fn, config))
        return submit(client, data, "importance_sampling")

    monkeypatch.setattr(FakeTrainingClient, "forward_backward", spy)
    await run_async(
        "rl_basic", make(num_eval=0, **settings), adapters=Adapters(service=FakeService(answer=digit).connect)
    )
    assert asked == [(loss, options)] * 3


@pytest.mark.parametrize(
    ("reference", "opened"),
    [
        (None, {"base_model": "cookhouse/tiny"}),
        ("some/other-model", {"base_model": "some/other-model"}),
        ("tinker://run/weights/x", {"model_path": "tinker://run/weights/x"}),
    ],
)
async def test_the_reference_is_the_one_that_is_named(
    make: MakeConfig, monkeypatch: pytest.MonkeyPatch, reference: str | None, opened: dict[str, str]
) -> None:
    # Catches a penalty that is always against the base model, whatever `kl_reference` says.
    asked: list[dict[str, str]] = []
    states: dict[str, Any] = {}
    saver: Any = await FakeService(states=states).create_lora_training_client("fake", seed=5)
    states["tinker://run/weights/x"] = states[(await saver.save_state("x")).path]
    create = FakeService.create_sampling_client

    def spy(service: FakeService, **place: str) -> Any:
        asked.append(place)
        return create(service, **place)

    monkeypatch.setattr(FakeService, "create_sampling_client", spy)
    config = make(num_eval=0, kl_coef=0.1, kl_reference=reference, max_steps=1)
    result = await run_async(
        "rl_basic", config, adapters=Adapters(service=FakeService(states=states, answer=digit).connect)
    )
    assert asked == [opened]
    assert abs(read_metrics(result.summary.folder / "metrics.jsonl")[0]["optim/kl_reference"]) > 1e-6


async def test_every_setting_of_a_rollout_reaches_it(make: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches limits, retries and places at a time that a run records and does not heed.
    seen: list[tuple[RolloutLimits, RolloutStrategy]] = []
    running = most = 0

    async def spy(builder: Any, sampler: Any, *, seed: int, limits: RolloutLimits, strategy: RolloutStrategy) -> Any:
        nonlocal running, most
        seen.append((limits, part_of(RolloutStrategy, strategy)))
        running += 1
        most = max(most, running)
        try:
            return await do_group_rollout(builder, sampler, seed=seed, limits=limits, strategy=strategy)
        finally:
            running -= 1

    monkeypatch.setattr(rollouts, "do_group_rollout", spy)
    monkeypatch.setattr(Config, "has_several_turns", True)  # or limits of turns would be refused
    config = make(
        max_turns=3,
        max_sequence_tokens=99,
        max_tool_calls=5,
        rollout_attempts=2,
        min_group_members=3,
        max_concurrent_groups=1,
        max_steps_off_policy=1,
        max_steps=2,
    )
    await run_async("rl_basic", config, adapters=Adapters(service=FakeService(answer=digit).connect))
    limits = RolloutLimits(max_turns=3, max_sequence_tokens=99, max_tool_calls=5)
    assert set(seen) == {(limits, RolloutStrategy(rollout_attempts=2, min_group_members=3))}
    assert len(seen) == 2 * 2 + 2 * 3, "two steps of two groups, and three held out, twice"
    assert most <= 2, "one of training, and one of an evaluation beside it"


async def test_every_setting_of_an_advantage_reaches_it(make: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches a setting that is recorded and that the component never sees.
    seen: list[tuple[AdvantageSettings, UpdateSettings]] = []
    make_source: Any = vars(reinforcement)["RolloutSource"]

    def spy(*, assemble: Any, settings: UpdateSettings, **more: Any) -> Any:
        seen.append((assemble.settings, settings))
        return make_source(assemble=assemble, settings=settings, **more)

    monkeypatch.setattr(reinforcement, "RolloutSource", spy)
    settings = {
        "advantage": "cookhouse.rl.learning.advantages:gae_advantages",  # of one's own: it may read anything
        "gamma": 0.5,
        "gae_lambda": 0.25,
        "kl_coef": 0.125,
        "kl_gamma": 0.75,
        "constant_reward_groups": "remove",
        "num_substeps": 2,
        "ppo_epochs": 3,
    }
    config = make(num_eval=0, max_steps=1, **settings)
    await run_async("rl_basic", config, adapters=Adapters(service=FakeService(answer=digit).connect))
    [both] = seen
    assert {name: getattr(each, name) for each in both for name in settings if hasattr(each, name)} == settings


PLAIN: dict[str, Any] = {"advantage": "group_centered"}
PUNISH = {"overlong_answers": "punish"}
REPLACE = {"constant_reward_groups": "replace"}


@pytest.mark.parametrize(
    ("settings", "other"),
    [
        ({"advantage": "normalized"}, PLAIN),
        ({"advantage": "total_reward"}, PLAIN),
        ({"advantage_normalization": "batch"}, PLAIN),
        ({"reduction": "mean"}, PLAIN),
        ({"reduction": "token_mean"}, {"reduction": "mean"}),
        ({"overlong_answers": "mask"}, PLAIN),
        (PUNISH, PLAIN),
        ({**PUNISH, "overlong_cache_tokens": 5}, PUNISH),
        ({"constant_reward_groups": "remove"}, PLAIN),
        (REPLACE, {"constant_reward_groups": "remove"}),
        ({**REPLACE, "max_batches_drawn": 2}, REPLACE),
        ({"clip_low": 0.8, "clip_high": 1.28}, {"loss_fn": "ppo"}),
    ],
    ids=str,
)
async def test_what_a_setting_says_is_in_what_is_sent(
    make: MakeConfig,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    settings: dict[str, Any],
    other: dict[str, Any],
) -> None:
    # Catches a setting of a published algorithm that is accepted and goes nowhere.
    tokenizer = get_tokenizer("cookhouse/tiny")
    submit = FakeTrainingClient.forward_backward
    sent: list[Any] = []

    def spy(client: FakeTrainingClient, data: list[tinker.Datum], loss_fn: str, config: Any = None) -> Any:
        sent.append((loss_fn, config, [datum.loss_fn_inputs["advantages"].tolist() for datum in data]))
        return submit(client, data, loss_fn, config)

    def one_to_nine_tokens(theta: Any, prompt_T: Sequence[int], chance: Any) -> Sequence[int]:
        """Most problems are answered wrong throughout; the longest answers are cut, at eight tokens."""
        del theta
        is_hard = re.search(r"Compute [1-4]", tokenizer.decode(prompt_T)) is not None
        right: list[int] = tokenizer.encode(" 5\n", add_special_tokens=False)
        return [right[0]] * int(chance.integers(1, 10)) if is_hard or chance.random() < 0.5 else right

    monkeypatch.setattr(FakeTrainingClient, "forward_backward", spy)
    found = []
    for number, each in enumerate((settings, other)):
        config = make(num_eval=0, max_steps=2, log_path=str(tmp_path / str(number)), **each)
        service = FakeService(answer=one_to_nine_tokens)
        await run_async("rl_basic", config, adapters=Adapters(service=service.connect))
        found.append(sent[:])
        sent.clear()
    assert found[0]
    assert found[0] != found[1]


async def test_periodic_checkpoints_may_be_deleted_and_the_last_may_not(
    make: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Catches a disk that fills up although a life time was asked for, and a trained model that is gone after it.
    asked: list[tuple[str, int | None]] = []
    save = FakeTrainingClient.save_state

    def spy(client: FakeTrainingClient, name: str, ttl_seconds: int | None = None) -> Any:
        asked.append((name, ttl_seconds))
        return save(client, name, ttl_seconds)

    monkeypatch.setattr(FakeTrainingClient, "save_state", spy)
    await run_async(
        "rl_basic",
        make(num_eval=0, save_every=2, ttl_seconds=7200),
        adapters=Adapters(service=FakeService(answer=digit).connect),
    )
    assert asked == [("000002", 7200), ("final", None)]


async def test_a_run_is_shrunk_to_its_batches(make: MakeConfig) -> None:
    config = make(num_eval=0, n_batches=2, max_steps=None, num_epochs=2)
    result = await run_async("rl_basic", config, adapters=Adapters(service=FakeService(answer=digit).connect))
    assert result.summary.total_steps == 2 * 2


async def test_evaluations_have_their_own_temperature_and_the_same_seeds_each_time(
    make: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Catches an evaluation that samples as training does, and one whose luck differs from the one before it.
    asked: list[tuple[str, tinker.SamplingParams]] = []
    sample = FakeSamplingClient.sample
    tokenizer = get_tokenizer("cookhouse/tiny")

    def spy(client: FakeSamplingClient, prompt: tinker.ModelInput, num: int, params: tinker.SamplingParams) -> Any:
        asked.append((str(tokenizer.decode(prompt.to_ints())), params))
        return sample(client, prompt, num, params)

    monkeypatch.setattr(FakeSamplingClient, "sample", spy)
    config = make(temperature=0.9, eval_temperature=0.25, eval_every=1)
    await run_async("rl_basic", config, adapters=Adapters(service=FakeService(answer=digit).connect))
    held_out = {question: [p for prompt, p in asked if question in prompt] for question in HELD_OUT}
    trained = [params for prompt, params in asked if not any(question in prompt for question in HELD_OUT)]
    assert {params.temperature for params in trained} == {0.9}
    assert {params.temperature for each in held_out.values() for params in each} == {0.25}
    assert [len(each) for each in held_out.values()] == [4, 4, 4]  # before, twice between, after
    seeds = [{params.seed for params in each} for each in held_out.values()]
    assert [len(each) for each in seeds] == [1, 1, 1]
    assert len(set.union(*seeds)) == 3, "each problem has a seed of its own"
    assert len({params.seed for params in trained}) == len(trained) == 6


@pytest.mark.parametrize("of_the_batch", [{"kl_coef": 0.5}, {"advantage_normalization": "batch", "seed": 1}])
@pytest.mark.parametrize("pieces", [{"num_minibatches": 2}, {"num_substeps": 2}])
async def test_a_mean_is_over_the_step(
    make: MakeConfig,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    pieces: dict[str, int],
    of_the_batch: dict[str, Any],
) -> None:
    # Catches a baseline of its own for each piece of a step, and a figure that is a mean of the pieces' means.
    forward_backward = FakeTrainingClient.forward_backward
    advantages: list[float] = []

    def recorded(client: FakeTrainingClient, data: list[tinker.Datum], *arguments: Any) -> Any:
        for datum in data:
            advantages.extend(datum.loss_fn_inputs["advantages"].to_numpy().tolist())
        return forward_backward(client, data, *arguments)

    monkeypatch.setattr(FakeTrainingClient, "forward_backward", recorded)
    found = []
    for number, settings in enumerate(({}, pieces)):
        places = {"num_eval": 0, "max_steps": 1, "log_path": str(tmp_path / str(number))}
        config = make(**places, **of_the_batch, **settings)
        await run_async("rl_basic", config, adapters=Adapters(service=FakeService(answer=five_or_six).connect))
        row = read_metrics(tmp_path / str(number) / "metrics.jsonl")[0]
        found.append((advantages[:], row.get("optim/kl_reference")))
        advantages.clear()
    assert found[0] == found[1]
    assert len(set(found[0][0])) > 3


@pytest.mark.parametrize("constant", ["keep", "remove", "replace"])
async def test_a_run_whose_rewards_are_all_equal_says_so_everywhere(
    make: MakeConfig, capsys: pytest.CaptureFixture[str], constant: str
) -> None:
    # Catches a run that trains for nothing and does not say it: in the terminal, the result, the log or the page.
    config = make(num_eval=0, constant_reward_groups=constant)
    wrong = FakeService(answer=lambda *_: [5])
    result = await run_async("rl_basic", config, adapters=Adapters(service=wrong.connect))
    folder = result.summary.folder
    rows = read_metrics(folder / "metrics.jsonl")
    assert {row["env/all/by_group/frac_mixed"] for row in rows} == {0.0}
    assert result.summary.findings[0].name == "no_spread"
    title = result.summary.findings[0].title
    assert f"groups had different rewards in the last {min(4, len(rows))} steps" in title
    assert title in html.unescape((folder / "report.html").read_text())
    assert title in (folder / "logs.log").read_text()
    assert title in " ".join(capsys.readouterr().out.split())
    stored = read_result(folder)
    assert stored is not None
    assert stored.summary.findings == result.summary.findings


@pytest.mark.parametrize("loss_fn", ["importance_sampling", "ppo"])
async def test_a_result_has_its_last_step_by_plain_names(make: MakeConfig, loss_fn: str) -> None:
    # Catches names that nothing stands behind, and a clipped share of a loss that clips nothing.

    config = make(loss_fn=loss_fn, metrics="all")
    result = await run_async("rl_basic", config, adapters=Adapters(service=FakeService(answer=five_or_six).connect))
    folder, state = result.summary.folder, result.state
    last = read_metrics(folder / "metrics.jsonl")[2]
    lines = (folder / "rollouts" / "000002.jsonl").read_text().splitlines()
    rewards = [
        reward
        for line in lines
        for reward in group_from_json(json.dumps(json.loads(line)["group"])).get_total_rewards()
    ]
    assert state.rollout_metrics == {
        "reward_mean": pytest.approx(statistics.fmean(rewards)),
        "reward_std": pytest.approx(statistics.pstdev(rewards)),
        "num_trajectories": 8,
    }
    assert statistics.pstdev(rewards) > 0
    expected = {"policy_loss": last["optim/loss"] / last["train/num_trained_tokens"], "entropy": last["optim/entropy"]}
    if loss_fn == "ppo":
        expected["clip_fraction"] = last["optim/clip_frac"]
    assert state.ppo_metrics == expected
    assert state.eval_results["accuracy"] == result.metrics["test/env/all/correct"]
    assert "accuracy" not in result.metrics
    assert "accuracy" not in (folder / "metrics.jsonl").read_text()
