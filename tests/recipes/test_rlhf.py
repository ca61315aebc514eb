"""The pipeline rlhf and its last run, preference_rl, over the fake service: wired as published, the same bits however
often it is killed.
"""

import json
import re
from collections.abc import Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import tinker

from cookhouse.adapters import Adapters
from cookhouse.errors import InputError, ServiceError
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.recipes import dry_run, find_recipe, run_async
from cookhouse.recipes.preference_rl import Config as RLConfig
from cookhouse.recipes.rlhf import Config
from cookhouse.telemetry import read_metrics
from cookhouse.training import FakeService

pytestmark = pytest.mark.anyio

RUNS = ("sft", "preference_model", "rl")
SMALL = {
    "batch_size": 2,
    "max_steps": 3,
    "num_eval": 2,
    "eval_every": 0,
    "save_every": 2,
    "rl_group_size": 3,
    "sft_learning_rate": 0.1,
    "preference_learning_rate": 0.1,
    "rl_learning_rate": 0.1,
}


def words(theta: Any, prompt_T: Sequence[int], chance: Any) -> Sequence[int]:
    """One of four answers."""
    del theta, prompt_T
    said = ("Go.", "Could you please go?", "Go on.", "Well.")[int(chance.integers(4))]
    answer: list[int] = get_tokenizer("cookhouse/tiny").encode(f" {said}\n", add_special_tokens=False)
    return answer


async def run(folder: Path, service: FakeService, **settings: Any) -> Any:
    config = {**SMALL, "log_path": str(folder), **settings}
    return await run_async("rlhf", config, adapters=Adapters(service=service.connect, sinks=[]))


def learned(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The metrics of each run, without times."""
    return {
        name: [
            {key: value for key, value in row.items() if not key.startswith("time/")}
            for row in read_metrics(folder / name / "metrics.jsonl")
            if "optim/lr" in row
        ]
        for name in RUNS
        if (folder / name / "metrics.jsonl").exists()
    }


async def test_each_run_hands_its_weights_on_by_name(tmp_path: Path) -> None:
    result = await run(tmp_path / "run", FakeService(answer=words))
    assert tuple(result.state.results) == RUNS
    assert result.summary.num_steps == 9
    recorded = {name: json.loads((tmp_path / "run" / name / "config.json").read_text())["config"] for name in RUNS}
    assert recorded["rl"]["load_checkpoint_path"] == str(tmp_path / "run" / "sft")
    assert "model_path" in json.loads((tmp_path / "run" / "rl" / "reference.json").read_text())
    assert recorded["rl"]["preference_model"] == str(tmp_path / "run" / "preference_model")
    assert {each["renderer_name"] for each in recorded.values()} == {"human_ai"}
    assert result.metrics["preference_model/test/accuracy"] == 0.5
    for name in ("win_share", "rule", "agreement"):
        assert 0.0 <= result.metrics[f"rl/test/env/all/{name}"] <= 1.0
    first, *_, last = learned(tmp_path / "run")["rl"]
    assert first["optim/kl_reference"] == pytest.approx(0.0, abs=0.1)
    assert "optim/kl_reference" in last
    page = (tmp_path / "run" / "rl" / "report.html").read_text()
    assert "Preference model and rule" in page
    assert re.search(r"They part after step|they do not part", unescape(page))
    summary = result.summary
    titles = " ".join(finding.title for finding in summary.findings)
    assert "preference model's win share goes from" in f"{titles} {summary.remark}"
    last_run = result.state.results["rl"].summary
    assert (summary.findings, summary.remark) == (last_run.findings, last_run.remark)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("forward_backward", 1),
        pytest.param("forward_backward", 4, marks=pytest.mark.slow),
        ("load_weights", 0),
        pytest.param("forward_backward", 8, marks=pytest.mark.slow),
    ],
)
async def test_killed_between_and_within_its_runs_it_goes_on_to_the_same_bits(
    tmp_path: Path, kind: str, number: int
) -> None:
    # Catches a run that begins anew, another preference model, and a reference that is taken after the resume.
    await run(tmp_path / "whole", FakeService(answer=words))
    whole = learned(tmp_path / "whole")
    assert [len(rows) for rows in whole.values()] == [3, 3, 3]

    async def gate(asked: str, count: int) -> None:
        if (asked, count) == (kind, number):
            raise tinker.RequestFailedError("killed", "r", tinker.types.RequestErrorCategory.Server)

    broken = FakeService(answer=words, gate=gate)
    with pytest.raises(ServiceError, match="killed"):
        await run(tmp_path / "run", broken)
    assert learned(tmp_path / "run") != whole
    again = FakeService(answer=words, states=broken.states)
    await run(tmp_path / "run", again, behavior_if_log_dir_exists="resume")
    assert learned(tmp_path / "run") == whole
    third = FakeService(answer=words, states=again.states)
    await run(tmp_path / "run", third, behavior_if_log_dir_exists="resume")
    assert third.calls == [], "nothing is left to do"


async def test_a_preference_model_that_fails_ends_the_run_and_its_group_is_no_zero(tmp_path: Path) -> None:
    await run(tmp_path / "run", service := FakeService(answer=words))

    async def gate(asked: str, count: int) -> None:
        if asked == "compute_logprobs" and count >= 0:
            raise tinker.RequestFailedError("the scorer broke", "r", tinker.types.RequestErrorCategory.Server)

    broken = FakeService(answer=words, states=service.states, gate=gate)
    settings = {"batch_size": 2, "group_size": 3, "num_eval": 0, "max_steps": 1, "compute_kl": False}
    config = {**settings, "preference_model": str(tmp_path / "run/preference_model"), "log_path": str(tmp_path / "b")}
    with pytest.raises(Exception, match="the scorer broke"):
        await run_async("preference_rl", config, adapters=Adapters(service=broken.connect, sinks=[]))
    assert not learned(tmp_path / "b").get("rl")


@pytest.mark.parametrize(
    ("settings", "recorded", "reason"),
    [
        ({}, {"renderer_name": "qwen3"}, "trained with the chat format qwen3, and would be asked with human_ai.*set "
         "preference_renderer=qwen3"),
        ({}, {"model_name": "Qwen/Qwen3-8B"}, "trained with the base model Qwen/Qwen3-8B, and would be asked with "
         "cookhouse/tiny.*set preference_base_model=Qwen/Qwen3-8B"),
        ({"preference_renderer": "role_colon"}, {}, "and would be asked with role_colon"),
    ],
)  # fmt: skip
def test_a_preference_model_of_other_tokens_is_refused_before_anything_is_opened(
    tmp_path: Path, settings: Mapping[str, Any], recorded: Mapping[str, Any], reason: str
) -> None:
    folder = tmp_path / "pm"
    folder.mkdir()
    paths = {"state_path": "tinker://x/weights/final", "sampler_path": "tinker://x/sampler_weights/final"}
    (folder / "checkpoints.jsonl").write_text(json.dumps({"name": "final", **paths}) + "\n")
    config = {"model_name": "cookhouse/tiny", "renderer_name": "human_ai", **recorded}
    (folder / "config.json").write_text(json.dumps({"recipe": "preference_model", "config": config}))
    with pytest.raises(InputError, match=reason):
        dry_run("preference_rl", {"preference_model": str(folder), "log_path": str(tmp_path / "run"), **settings})


def test_nobody_to_compare_is_told_before_anything_is_opened(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="preference_model is not set"):
        dry_run("preference_rl", {"log_path": str(tmp_path / "run")})
    with pytest.raises(InputError, match="num_rounds=2 would change nothing: it is read with tournament=rounds"):
        RLConfig(num_rounds=2)


def test_published_defaults_and_names() -> None:
    config = Config(model_name="Qwen/Qwen3.5-9B-Base")
    rates = (config.sft_learning_rate, config.preference_learning_rate, config.rl_learning_rate)
    assert rates == (2e-4, 3e-4, 1e-5)
    assert (config.lora_rank, config.rl_group_size, config.rl_max_tokens) == (64, 4, 1024)
    by_reward = RLConfig(model_name="Qwen/Qwen3.5-9B-Base")
    assert (by_reward.learning_rate, by_reward.lora_rank, by_reward.group_size, by_reward.max_tokens) == (
        1e-5,
        64,
        4,
        1024,
    )
    assert find_recipe("rlhf_pipeline") is find_recipe("rlhf")
    tree = find_recipe("rlhf").workflow(Config()).describe()
    assert [name for name in RUNS if name in tree] == [*RUNS]
    assert "check_preference_model" in find_recipe("preference_rl").workflow(RLConfig()).describe()


async def test_bundled_demonstrations_stand_beside_others(tmp_path: Path) -> None:
    # Catches `bundled` that is the conversations of another recipe as soon as another set is named with it.
    mine = tmp_path / "mine.jsonl"
    mine.write_text(json.dumps({"prompt": "say 1", "completion": "1 is said"}) + "\n")
    await run(tmp_path / "run", FakeService(answer=words), sft_dataset_path=f"{mine},bundled", max_steps=1)
    config = json.loads((tmp_path / "run/sft/config.json").read_text())["config"]
    first, bundled = config["dataset_path"].split(",")
    assert first == str(mine)
    assert Path(bundled).name == "demonstrations_train.jsonl"
    assert Path(config["test_path"]).name == "demonstrations_test.jsonl"


async def test_an_automatic_rate_is_handed_down_by_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Would catch a run of the pipeline that has another rate than the pipeline's, and one that does not say which."""
    model = {"model_name": "openai/gpt-oss-20b", "renderer_name": "role_colon"}
    rates = {f"{name}_learning_rate": "auto" for name in ("sft", "preference", "rl")}
    make: Any = Config
    auto, usual = make(**model, **rates), make(**model)
    for name, each in zip(
        ("sft", "preference", "rl"), ("supervised", "preference_model", "preference_rl"), strict=True
    ):
        child: Any = find_recipe(each).config_class
        expected = getattr(usual, f"{name}_learning_rate")
        assert getattr(auto, f"{name}_learning_rate") == expected
        assert child(**model, learning_rate="auto").learning_rate == expected
    await run(tmp_path / "run", FakeService(answer=words), **(rates | {"max_steps": 1}))
    assert caplog.text.count("learning_rate=auto is 0.0006, by the rule for qwen3 of width 192") == 2
    assert "learning_rate=auto is 0.001, the recipe's default" in caplog.text, "by reward, as it was measured"
