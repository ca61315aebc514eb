"""The recipe dpo from config to result, over the fake service."""

import asyncio
import json
import os
import re
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import tinker
from tests.recipes.events import Events
from tests.recipes.pairs import MakeConfig, config_maker, some, write
from tests.telemetry.test_trace import events_in

from cookhouse.adapters import Adapters
from cookhouse.errors import BadRowsError, InputError, ServiceError
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.recipes import dry_run, find_recipe, run_async
from cookhouse.recipes.dpo import Config
from cookhouse.telemetry import Event, read_metrics
from cookhouse.training import FakeService
from cookhouse.weights.checkpoints import CheckpointFile
from cookhouse.workflows import preference_workflow

pytestmark = pytest.mark.anyio


@pytest.fixture
def make_config(tmp_path: Path) -> MakeConfig:
    return config_maker(tmp_path, some(0, 12), some(20, 4), num_samples=2)


def parrot(theta: Any, prompt_T: Sequence[int], chance: Any) -> Sequence[int]:  # noqa: ARG001
    """Answers as is preferred once the fake model has been trained at all, and with the other answer before."""
    tokenizer = get_tokenizer("cookhouse/tiny")
    asked = tokenizer.decode(prompt_T).rpartition("say ")[2].split("\n")[0]
    answer = f" {asked} is said\n" if abs(theta).max() > 0.45 else f" no, not {asked}\n"
    return [*tokenizer.encode(answer, add_special_tokens=False)]


async def run(config: Config | Mapping[str, Any], service: FakeService, *sinks: Events) -> Any:
    return await run_async("dpo", config, adapters=Adapters(service=service.connect, sinks=[*sinks]))


def trained(folder: Path) -> list[dict[str, Any]]:
    """What was trained, step by step, without times."""
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if "train/dpo_loss" in row]
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in rows]


async def test_a_run_learns_the_preference_and_tells_what_practitioners_look_at(make_config: MakeConfig) -> None:
    service, events = FakeService(answer=parrot), Events()
    result = await run(make_config(), service, events)
    summary, folder = result.summary, result.summary.folder
    assert (summary.num_steps, summary.total_steps) == (6, 6)
    assert summary.after("test/accuracy") == 1.0
    assert summary.after("test/margin") > summary.before("test/margin")
    assert (summary.before("test/answered_chosen"), summary.after("test/answered_chosen")) == (0.0, 1.0)
    shown = summary.samples[0]
    assert (shown.prompt, shown.expected) == ("say 20", "20 is said")
    assert (shown.before, shown.after) == ("no, not 20", "20 is said")
    rows = trained(folder)
    names = ("dpo_loss", "accuracy", "margin", "chosen_reward", "rejected_reward", "chosen_tokens", "chosen_logprob")
    assert {f"train/{name}" for name in names} | {"optim/lr", "optim/grad_norm", "train/num_tokens"} <= rows[0].keys()
    assert result.state.dpo_metrics == {
        name.removeprefix("train/"): value for name, value in rows[-1].items() if name.startswith("train/")
    }
    assert events.names.count("dpo.step") == events.names.count("training.step") == 6
    assert events.names.count("run.estimate") == 0  # of a run this short
    assert (folder / "report.html").exists()
    before, after = (read_metrics(folder / "metrics.jsonl")[index] for index in (0, -1))
    assert (before["test/answered_rejected"], after["test/answered_rejected"]) == (1.0, 0.0)
    assert (before["test/answer_win_rate"], after["test/answer_win_rate"]) == (0.0, 1.0)
    assert after["test/answer_win_rate_low"] == after["test/accuracy_low"] == pytest.approx(0.510109, abs=1e-6)
    assert after["test/answer_win_rate_high"] == after["test/accuracy_high"] == 1.0
    page = (folder / "report.html").read_text()
    # Side by side on the page, and as JSON beside it.
    assert page.count("no, not 20") >= 1 <= page.count("20 is said")
    assert all(name in page for name in ("train/chosen_reward", "train/rejected_reward", "test/answer_characters"))


class Critic:
    """Prefers whichever answer says that something is said; fits `cookhouse.rl.MessageCompleter`."""

    async def __call__(self, messages: Sequence[Any]) -> Any:
        await asyncio.sleep(0.02)  # meanwhile training goes on, and another evaluation begins
        a, b = str(messages[-1]["content"]).split("==== Completion A ====\n")[1].split("==== Completion B ====\n")
        likes = ["is said" in text for text in (a, b)]
        return {"role": "assistant", "content": "Tie" if likes[0] == likes[1] else "AB"[likes.index(True)]}


async def test_answers_are_judged_against_the_chosen_ones_and_those_before_training(make_config: MakeConfig) -> None:
    # Catches opponents of another step, also after a resume, and a judge that is told which answer is which.
    def press(event: Event) -> None:
        if event.name == "dpo.step" and event.step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    service = FakeService(answer=parrot)
    config = make_config(preference_model="critic", eval_every=1)
    adapters = Adapters(service=service.connect, sinks=[Events(press)], completer=lambda _: Critic())
    assert (await run_async("dpo", config, adapters=adapters)).summary.is_interrupted
    adapters = Adapters(service=FakeService(answer=parrot, states=service.states).connect, completer=lambda _: Critic())
    resumed = make_config(preference_model="critic", eval_every=1, behavior_if_log_dir_exists="resume")
    summary = (await run_async("dpo", resumed, adapters=adapters)).summary
    assert (summary.before("test/win_rate_chosen"), summary.after("test/win_rate_chosen")) == (0.0, 0.5)
    assert (summary.before("test/win_rate_initial"), summary.after("test/win_rate_initial")) == (0.5, 1.0)
    last = read_metrics(summary.folder / "metrics.jsonl")[-1]
    assert last["test/win_rate_initial_low"] == pytest.approx(0.510109, abs=1e-6)
    assert "test/answer_win_rate" not in last
    rows = read_metrics(summary.folder / "metrics.jsonl")
    assert len([row for row in rows if "test/win_rate_chosen" in row]) == 7
    assert all("test/win_rate_initial" in row for row in rows if "test/win_rate_chosen" in row)
    page = (summary.folder / "report.html").read_text()
    assert "before training: 0 of 4 win against what was expected" in page
    assert re.search(r"before training</span><div>.*loses", page)
    assert re.search(r"after step 6</span><div>.*draws", page)
    noted = json.loads((summary.folder / "evaluations" / "000006-answers.json").read_text())
    assert "wins (+1.000)" in json.dumps(noted)


@pytest.mark.parametrize(
    ("judge", "reason"),
    [
        ("some/model", "some/model names no weights, and as a base model it would be asked as cookhouse/tiny is"),
        ("adapter", "adapter was trained with the base model other/model, .* set preference_base_model=other/model"),
    ],
)
def test_a_judge_of_another_vocabulary_is_refused(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, judge: str, reason: str
) -> None:
    # Catches judgments of tokens that mean something else to whoever judges.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text('{"base_model_name_or_path": "other/model"}')
    with pytest.raises(InputError, match=reason):
        dry_run("dpo", make_config(preference_model=judge))


@pytest.mark.parametrize(("judge", "is_told"), [(None, True), ("cookhouse/tiny", False)])
def test_a_run_says_how_answers_are_compared(make_config: MakeConfig, judge: str | None, is_told: bool) -> None:
    plan = dry_run("dpo", make_config(preference_model=judge))
    assert ("letter by letter" in plan.facts["held-out answers"]) == is_told


async def test_ctrl_c_and_a_resume_give_the_run_that_was_not_disturbed(make_config: MakeConfig, tmp_path: Path) -> None:
    # Catches a reference that is taken from the weights at the resume, and an order of pairs that starts over.
    whole = await run(make_config(log_path=str(tmp_path / "whole")), FakeService())

    def press(event: Event) -> None:
        if event.name == "dpo.step" and event.step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    service = FakeService()
    stopped = await run(make_config(), service, Events(press))
    assert stopped.summary.is_interrupted
    assert 3 <= stopped.summary.num_steps < 6
    later = FakeService(states=service.states)
    resumed = await run(make_config(behavior_if_log_dir_exists="resume"), later)
    assert trained(resumed.summary.folder) == trained(whole.summary.folder)
    assert resumed.summary.after("test/margin") == whole.summary.after("test/margin")
    assert resumed.state.dpo_metrics == whole.state.dpo_metrics
    again = await run(make_config(behavior_if_log_dir_exists="resume"), FakeService(states=later.states))
    assert again.state.dpo_metrics == whole.state.dpo_metrics


@pytest.mark.parametrize("is_cached", [True, False])
async def test_the_reference_is_the_weights_the_run_began_with_also_when_those_are_gone(
    make_config: MakeConfig, tmp_path: Path, is_cached: bool
) -> None:
    # Catches the base model in the place of loaded weights, and a reference that is looked for where it was.
    first = FakeService()
    await run(make_config(log_path=str(tmp_path / "first"), seed=5), first)
    began = CheckpointFile(tmp_path / "first" / "checkpoints.jsonl").read()[-1]

    def config(name: str) -> Config:
        weights = str(tmp_path / "first")
        return make_config(log_path=str(tmp_path / name), load_checkpoint_path=weights, cache_reference=is_cached)

    whole = await run(config("whole"), FakeService(states=dict(first.states)))
    rows = trained(whole.summary.folder)
    assert (rows[0]["train/margin"], rows[0]["train/accuracy"]) == (0.0, 0.5)
    assert rows[-1]["train/margin"] > 0.0

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("forward_backward_custom", 4):
            raise tinker.RequestFailedError("killed", "r", tinker.types.RequestErrorCategory.Server)

    broken = FakeService(states=dict(first.states), gate=gate)
    with pytest.raises(ServiceError, match="killed"):
        await run(config("broken"), broken)
    left = {path: state for path, state in broken.states.items() if path not in (began.state_path, began.sampler_path)}
    shutil.rmtree(tmp_path / "first")
    going_on = {"log_path": str(tmp_path / "broken"), "behavior_if_log_dir_exists": "resume"}
    resumed = await run(going_on, FakeService(states=left))
    assert trained(resumed.summary.folder) == rows
    assert (tmp_path / "broken" / "reference_logprobs.jsonl").exists() == is_cached


async def test_another_model_as_the_reference(make_config: MakeConfig, tmp_path: Path) -> None:
    service = FakeService()
    await run(make_config(log_path=str(tmp_path / "first")), service)
    result = await run(make_config(reference_model=str(tmp_path / "first")), service)
    named = json.loads((result.summary.folder / "reference.json").read_text())
    assert named == {"model_path": CheckpointFile(tmp_path / "first" / "checkpoints.jsonl").read()[-1].state_path}
    base = await run(make_config(reference_model="some/model", log_path=str(tmp_path / "base")), service)
    assert json.loads((base.summary.folder / "reference.json").read_text()) == {"base_model": "some/model"}
    (tmp_path / "base" / "reference.json").write_text("{}")
    with pytest.raises(InputError, match="does not say what the reference of this run is"):
        await run(
            make_config(
                reference_model="some/model", log_path=str(tmp_path / "base"), behavior_if_log_dir_exists="resume"
            ),
            service,
        )


@pytest.mark.parametrize("begun", [False, True])
async def test_the_reference_is_asked_once_a_batch_and_equals_the_weights_it_is(
    make_config: MakeConfig, tmp_path: Path, begun: bool
) -> None:
    # Catches a request for each answer, whose cost at the client bounds a run.
    first, settings = FakeService(), {}
    if begun:
        await run(make_config(log_path=str(tmp_path / "first"), seed=5), first)
        settings = {"load_checkpoint_path": str(tmp_path / "first")}
    service = FakeService(states=first.states)
    result = await run(make_config(test_path=None, num_epochs=1, **settings), service)
    kinds = [call.kind for call in service.calls if call.phase == "submit"]
    assert "compute_logprobs" not in kinds
    assert (kinds.count("forward"), kinds.count("forward_backward_custom")) == (3, 3)
    assert trained(result.summary.folder)[0]["train/margin"] == 0.0


async def test_the_trace_shows_the_reference_of_a_batch_beside_the_training_of_the_one_before(
    make_config: MakeConfig,
) -> None:
    # Catches a reference that waits for training, or the other way round: then this run would stand still.
    second_reference = asyncio.Event()

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("forward", 1):
            second_reference.set()
        if (kind, number) == ("forward_backward_custom", 0):
            await second_reference.wait()

    result = await run(make_config(test_path=None, num_epochs=1), FakeService(gate=gate))
    events = events_in(result.summary.folder / "trace.json")

    def spans(name: str) -> list[list[float]]:
        """Begin and end of each, in the order in which they ended."""
        ids = [event["id"] for event in events if event["name"] == name and event["ph"] == "e"]
        return [[event["ts"] for event in events if event["id"] == each] for each in ids]

    references, training = spans("compute_reference_logprobs"), spans("dpo_forward_backward")
    assert len(references) == len(training) == 3
    assert training[0][0] < references[1][1] <= training[0][1]


@pytest.mark.parametrize("pair_loss", ["simpo", "orpo"])
async def test_losses_without_a_reference_ask_for_none(make_config: MakeConfig, pair_loss: str) -> None:
    service = FakeService()
    result = await run(make_config(pair_loss=pair_loss), service)
    assert {call.kind for call in service.calls}.isdisjoint({"compute_logprobs", "create_sampling_client"})
    assert [call.kind for call in service.calls if call.phase == "submit"].count("create_model") == 1
    assert result.summary.after("test/margin") > result.summary.before("test/margin")
    with pytest.raises(InputError, match="reference_model=some/model would change nothing"):
        make_config(pair_loss=pair_loss, reference_model="some/model")


async def test_comparisons_are_read_and_ties_are_refused_or_left_out(make_config: MakeConfig, tmp_path: Path) -> None:
    def compared(number: int, label: str) -> dict[str, str]:
        return {"prompt": f"say {number}", "completion_a": "yes it is", "completion_b": "no", "label": label}

    path = write(tmp_path / "compared.jsonl", [compared(1, "A"), compared(2, "B"), compared(3, "Tie")])
    with pytest.raises(BadRowsError, match=r"compared.jsonl:3: the label is Tie"):
        await run(make_config(dataset_path=path), FakeService())
    result = await run(make_config(dataset_path=path, on_bad_row="skip"), FakeService())
    lengths = [
        pair.chosen.num_trained_tokens > pair.rejected.num_trained_tokens for pair in result.state.pairs.dataset.pairs
    ]
    assert lengths == [True, False]
    assert any(note.startswith("1 row cannot be used and is left out: ") for note in result.state.context.notes)


async def test_kto_learns_from_single_answers_and_others_do_not(make_config: MakeConfig, tmp_path: Path) -> None:
    said = ("no, not {}", "{} is said")
    rows = [{"prompt": f"say {n}", "completion": said[n % 3 > 0].format(n), "label": n % 3 > 0} for n in range(12)]
    path = write(tmp_path / "kto.jsonl", rows)
    with pytest.raises(InputError, match=r"kto\.jsonl:1: .* dpo compares two answers .*pair_loss=kto"):
        await run(make_config(dataset_path=path, test_path=path), FakeService())
    own = (
        "from cookhouse.losses.pair_losses import PairLoss, ipo\nMINE = PairLoss(function=ipo, compares_answers=True)\n"
    )
    (tmp_path / "own.py").write_text(own)
    with pytest.raises(InputError, match=r"own\.py:MINE compares two answers"):
        await run(make_config(dataset_path=path, test_path=path, pair_loss=f"{tmp_path}/own.py:MINE"), FakeService())
    config = make_config(dataset_path=path, test_path=None, eval_fraction=0.25, pair_loss="kto")
    result = await run(config, FakeService())
    assert result.summary.after("test/margin") > result.summary.before("test/margin")
    state = result.state
    asked = {prompt[0]["content"] for row in state.data.test for prompt in row.prompts}
    kept = {prompt[0]["content"] for row in state.data.train for prompt in row.prompts}
    assert asked
    assert asked.isdisjoint(kept)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"prompt": "q", "chosen": "same", "rejected": "same"}, "the same"),
        ({"prompt": "q", "chosen": "", "rejected": "no"}, "chosen is empty; a preference needs two answers"),
        ({"prompt": "q", "chosen": "yes", "rejected": [{"role": "assistant", "content": ""}]}, "empty|rejected"),
        ({"messages": [{"role": "user", "content": "q"}]}, "needs chosen and rejected"),
    ],
)
async def test_rows_that_are_no_pairs_are_refused_before_anything_is_opened(
    make_config: MakeConfig, tmp_path: Path, row: dict[str, Any], said: str
) -> None:
    service = FakeService()
    with pytest.raises(BadRowsError, match=said):
        await run(make_config(dataset_path=write(tmp_path / "bad.jsonl", [*some(0, 2), row])), service)
    assert service.calls == []
    assert not (tmp_path / "run").exists()


async def test_a_fraction_is_held_out_with_all_pairs_of_its_prompts(make_config: MakeConfig, tmp_path: Path) -> None:
    rows = [row for row in some(0, 10) for _ in range(2)]
    path = write(tmp_path / "twice.jsonl", rows)
    result = await run(make_config(dataset_path=path, test_path=None, eval_fraction=0.2), FakeService())
    asked = {row.prompt[0]["content"] for row in result.state.data.test}
    kept = {row.prompt[0]["content"] for row in result.state.data.train}
    assert asked
    assert asked.isdisjoint(kept)
    assert len(asked | kept) == 10
    with pytest.raises(InputError, match="eval_fraction and test_path both"):
        await run(make_config(eval_fraction=0.2), FakeService())


async def test_no_row_is_lost_to_a_fraction_where_prompts_have_several_pairs(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    # Catches rows drawn one by one: all the others of their prompts could not be trained on, half of the data.
    path = write(tmp_path / "six.jsonl", [row for row in some(0, 20) for _ in range(6)])
    result = await run(make_config(dataset_path=path, test_path=None, eval_fraction=0.1, max_steps=1), FakeService())
    assert (len(result.state.data.train), len(result.state.data.test)) == (108, 12)
    assert not any("held-out row's prompt" in note for note in result.state.context.notes)


async def test_single_answers_are_held_out_before_the_rarer_kind_is_repeated(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    # Catches pairs that are held out: with them go all answers of the rarer kind, which are in every pair.
    rows = [{"prompt": f"say {n}", "completion": "it is" if n > 9 else "no", "label": n > 9} for n in range(110)]
    path = write(tmp_path / "kto.jsonl", rows)
    config = make_config(dataset_path=path, test_path=None, eval_fraction=0.1, pair_loss="kto", max_steps=1)
    result = await run(config, FakeService())
    data = result.state.data
    asked = [
        {row.prompts[answer][0]["content"] for row in some} for some in (data.train, data.test) for answer in (0, 1)
    ]
    assert [len(prompts) for prompts in asked] == [90, 9, 10, 1]
    assert len(set.union(*asked)) == 110


async def test_a_run_says_how_long_it_will_take(make_config: MakeConfig) -> None:
    events = Events()
    await run(make_config(batch_size=1, max_steps=9, save_every=0), FakeService(), events)
    assert events.names.index("run.estimate") > events.names.index("dpo.step")


async def test_a_run_can_be_shrunk(make_config: MakeConfig) -> None:
    result = await run(make_config(n_train_samples=7, n_batches=1), FakeService())
    assert len(result.state.pairs.dataset.pairs) == 7
    assert result.summary.num_steps == 2


def test_a_dry_run_shows_pairs_reference_and_both_answers(make_config: MakeConfig) -> None:
    plan = dry_run("preference", make_config(batch_size=5, learning_rate=1e-3))
    assert plan.facts["pairs"] == "12 to train on, of which 0 lose an end; 4 held out"
    assert plan.facts["reference"] == "cookhouse/tiny, as the run begins with it"
    assert plan.facts["steps"] == "6 in all, 3 per epoch"
    assert "the last batch of an epoch has 2 of the 12 pairs, not 5" in plan.notes
    assert ["".join(text for text, is_trained in pieces if is_trained) for pieces in plan.previews] == [
        " 0 is said\n",
        " no, not 0\n",
    ]


def test_the_stages_have_their_names() -> None:
    described = preference_workflow(Config()).describe()
    names = [line.split(" ")[-1].rstrip("?") for line in described.splitlines()]
    for stage in (
        *("load_dataset", "init_tokenizer", "build_preference_dataset", "init_session", "get_preference_batch"),
        *("compute_reference_logprobs", "dpo_forward_backward", "optim_step", "log_dpo_metrics", "checkpoint"),
        *("save_final", "cleanup"),
    ):
        assert stage in names, described


def test_defaults_of_other_models_are_those_of_the_field() -> None:
    config = find_recipe("preference").config_class(model_name="meta-llama/Llama-3.2-1B")
    found = (config.learning_rate, config.lr_schedule, config.dpo_beta, config.batch_size, config.max_length)
    assert found == (1e-5, "linear", 0.1, 256, 8192)
    assert config.dataset_path == "hh"


def test_a_set_of_another_kind_is_refused(make_config: MakeConfig) -> None:
    with pytest.raises(InputError, match="no_robots holds conversations, and this run needs preferences"):
        dry_run("dpo", make_config(dataset_path="no_robots"))
