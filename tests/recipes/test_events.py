"""Which events a run emits, with their fields: what a sink of the user's own may count on."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from cookhouse.adapters import Adapters
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.recipes import run_async
from cookhouse.recipes.supervised import SupervisedConfig
from cookhouse.telemetry import Event, MetricsRow, Record, Span, events
from cookhouse.training import FakeService

pytestmark = pytest.mark.anyio

MakeConfig = Callable[..., SupervisedConfig]

STEP = {
    "optim/lr",
    "optim/grad_norm",
    "optim/synthetic",
    "progress/batch",
    "progress/done_frac",
    "progress/epoch",
    "time/step_seconds",
    "total_steps",
    "train/num_tokens",
    "train/num_trained_tokens",
}
COMMON: Mapping[str, tuple[set[str], set[str]]] = {
    events.RUN_DEFAULTS: (set(), {"text"}),
    events.RUN_START: ({"total_steps"}, {"recipe", "model", "folder"}),
    events.RUN_END: (set(), {"status"}),
    events.STAGE_START: (set(), {"stage", "doing"}),
    events.TRAINING_EPOCH: ({"epoch", "steps"}, set()),
    events.TRAINING_CHECKPOINT: (set(), {"checkpoint"}),
}

ENVIRONMENT = """
import cookhouse

class Env:
    def __init__(self, problem):
        pass

    async def initial_observation(self):
        cookhouse.note("asked <b>politely</b>")
        return [{"role": "user", "content": "say a number"}]

    async def step(self, message):
        with cookhouse.scope("grading", is_open=False):
            cookhouse.table([{"criterion": "number", "score": 1}])
        return cookhouse.MessageStepResult(
            reward=len(str(message["content"])) % 3, episode_done=True, next_messages=[], logs={"expected": "1"}
        )

def environment(settings, open_sampler):
    return cookhouse.message_environments(settings, Env, train=range(8))
"""

EVALUATOR = """
import cookhouse

def evaluator(settings, renderer):
    async def measure(client):
        with cookhouse.scope("judged"):
            cookhouse.note("<script>alert(1)</script>")
        return {"verdict": "good", "share": 0.5}
    return measure
"""


class Keeping:
    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, record: Record) -> None:
        self.records.append(record)

    def close(self) -> None: ...

    def named(self, name: str) -> list[Event]:
        return [record for record in self.records if isinstance(record, Event) and record.name == name]

    def fields(self) -> dict[str, tuple[set[str], set[str]]]:
        """Of each event that came: its metrics and its text, those that all of a name have."""
        found: dict[str, tuple[set[str], set[str]]] = {}
        for record in self.records:
            if isinstance(record, Event):
                metrics, text = found.setdefault(record.name, (set(record.metrics), set(record.text)))
                found[record.name] = (metrics & set(record.metrics), text & set(record.text))
        return found


def _answer(_theta: Any, _prompt_T: Sequence[int], _chance: Any) -> Sequence[int]:
    tokens: Sequence[int] = get_tokenizer("cookhouse/tiny").encode(" seven\n", add_special_tokens=False)
    return tokens


async def _run(recipe: str, config: Any, service: FakeService | None = None) -> Keeping:
    keeping = Keeping()
    await run_async(recipe, config, adapters=Adapters(service=(service or FakeService()).connect, sinks=[keeping]))
    return keeping


async def test_a_supervised_run(make_config: MakeConfig) -> None:
    keeping = await _run("supervised", make_config(eval_every=2))
    assert keeping.fields() == {
        **COMMON,
        events.DATA_COUNTS: (set(), {"text"}),
        events.DATA_NOTE: (set(), {"text"}),  # few steps
        events.DATA_PREVIEW: (set(), {"pieces"}),
        events.TRAINING_STEP: (STEP | {"train/loss"}, set()),
        events.EVAL_COMPLETE: (
            {"test/nll", "test/bits_per_byte", "test/exact_match", "test/exact_match_n", "test/exact_match_stderr"}
            | {"test/malformed", "test/truncated", "test/nll_stderr", "test/nll_tokens"},
            set(),
        ),
    }
    assert [event.step for event in keeping.named(events.TRAINING_STEP)] == [1, 2, 3, 4, 5, 6]
    epochs = [(event.step, dict(event.metrics)) for event in keeping.named(events.TRAINING_EPOCH)]
    assert epochs == [(3, {"epoch": 1, "steps": 3}), (6, {"epoch": 2, "steps": 3})]
    assert [event.step for event in keeping.named(events.TRAINING_CHECKPOINT)] == [2, 4, 6]
    assert [event.step for event in keeping.named(events.EVAL_COMPLETE)] == [0, 2, 4, 6]
    assert keeping.named(events.RUN_END)[0].text == {"status": "success"}


async def test_a_stage_has_a_span_of_its_name(make_config: MakeConfig) -> None:
    keeping = await _run("supervised", make_config(eval_every=2))
    spans = {record.name for record in keeping.records if isinstance(record, Span)}
    started = {event.text["stage"] for event in keeping.named(events.STAGE_START)}
    assert started <= spans
    assert {"load_dataset", "init_session", "get_batch", "forward_backward", "optim_step", "log_step_metrics"} <= spans
    assert {"checkpoint", "evaluate", "save_final", "cleanup"} <= spans


async def test_an_epoch_that_is_cut_short_is_none(make_config: MakeConfig) -> None:
    keeping = await _run("supervised", make_config(max_steps=2))
    assert keeping.named(events.TRAINING_EPOCH) == []


async def test_a_reinforcement_run(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(ENVIRONMENT)
    config = {"env": f"{tmp_path}/own.py:environment", "log_path": str(tmp_path / "run"), "batch_size": 4}
    settings = {**config, "group_size": 3, "save_every": 1, "max_steps": 2}
    keeping = await _run("rl", settings, FakeService(answer=_answer))
    fields = keeping.fields()
    assert COMMON.keys() | {events.TRAINING_STEP, events.RL_STEP, events.RL_ROLLOUT_COMPLETE} <= fields.keys()
    assert fields[events.RL_STEP] == fields[events.TRAINING_STEP]
    rows = [record for record in keeping.records if isinstance(record, MetricsRow)]
    steps = keeping.named(events.RL_STEP)
    assert [event.step for event in steps] == [1, 2]
    assert dict(steps[1].metrics) == {**rows[1].metrics, "total_steps": 2}
    assert STEP | {"env/all/reward/total", "env/all/total_episodes", "optim/policy_loss"} <= fields[events.RL_STEP][0]
    metrics, text = fields[events.RL_ROLLOUT_COMPLETE]
    assert {"env/all/reward/total", "rollouts/lag_mean"} <= metrics
    assert text == {"asked", "answered"}
    assert [event.step for event in keeping.named(events.RL_ROLLOUT_COMPLETE)] == [0, 1]


async def test_what_an_environment_notes_is_in_the_page_and_the_json_of_its_rollout(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(ENVIRONMENT)
    config = {"env": f"{tmp_path}/own.py:environment", "log_path": str(tmp_path / "run"), "batch_size": 1}
    await _run("rl", {**config, "group_size": 3, "max_steps": 1}, FakeService(answer=_answer))
    page = (tmp_path / "run" / "rollouts" / "000000.html").read_text()
    assert page.count("asked &lt;b&gt;politely&lt;/b&gt;") == 3
    assert page.count("<summary>grading</summary>") == 3
    [line] = (tmp_path / "run" / "rollouts" / "000000.jsonl").read_text().splitlines()
    for trajectory in json.loads(line)["group"]["trajectories"]:
        assert trajectory["turns"][0]["entries"] == [
            {"note": "asked <b>politely</b>"},
            {
                "scope": "grading",
                "is_open": False,
                "entries": [{"columns": ["criterion", "score"], "rows": [["number", "1"]]}],
            },
        ]


async def test_what_an_evaluator_notes_has_a_page_and_json(make_config: MakeConfig, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(EVALUATOR)
    name = f"{tmp_path}/mine.py:evaluator"
    keeping = await _run("supervised", make_config(evaluators=name, eval_every=4))
    folder = tmp_path / "run" / "evaluations"
    assert sorted(path.name for path in folder.iterdir()) == [
        f"{step:06d}-0.{kind}" for step in (0, 4, 6) for kind in ("html", "json")
    ]
    page = (folder / "000004-0.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert json.loads((folder / "000004-0.json").read_text()) == {
        "evaluator": name,
        "step": 4,
        "entries": [{"scope": "judged", "is_open": True, "entries": [{"note": "<script>alert(1)</script>"}]}],
    }
    report = (tmp_path / "run" / "report.html").read_text()
    assert re.findall(r'href="(evaluations/[^"]*)"', report) == [f"evaluations/{step:06d}-0.html" for step in (0, 4, 6)]
    found = [event for event in keeping.named(events.EVAL_COMPLETE) if event.text]
    assert [(event.step, event.text, event.metrics) for event in found] == [
        (step, {"test/verdict": "good"}, {"test/share": 0.5}) for step in (0, 4, 6)
    ]


def test_every_name_is_documented() -> None:
    source = Path(str(events.__file__)).read_text()
    names: Sequence[str] = [value for name, value in vars(events).items() if name.isupper()]
    assert len(set(names)) == len(names)
    for name in names:
        assert re.search(rf'= "{re.escape(name)}"\n"""', source), f"{name} has no docstring"
