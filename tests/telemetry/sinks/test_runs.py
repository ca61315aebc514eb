"""Whole runs into other tools: what these hold is what metrics.jsonl holds, also after a resume."""

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.telemetry.sinks.collector import Collector, attributes, plain
from tests.telemetry.sinks.readers import Row, mlflow_rows, tensorboard_rows, trackio_rows, wandb_records, wandb_rows

from cookhouse.adapters import Adapters
from cookhouse.errors import InputError
from cookhouse.recipes import run_async
from cookhouse.telemetry import Event, MetricsRow, Record, read_metrics
from cookhouse.telemetry.sinks.tracked import read_tracker_run
from cookhouse.training import FakeService

pytestmark = pytest.mark.anyio

MINE = """
import asyncio

def evaluator(settings, renderer):
    async def measure(client):
        measure.count = getattr(measure, "count", 0) + 1
        return {"verdict": f"<b>géneral</b>\\nanswer {measure.count}", "share": 1 / 3, "unmeasured": None}
    return measure

class Crashing:
    def __init__(self, folder, settings):
        pass
    def write(self, record):
        if type(record).__name__ == "MetricsRow" and record.step == 2:
            raise OSError("no space")
    def close(self):
        pass
"""
TOOLS: dict[str, Callable[[Path], Sequence[Row]]] = {
    "mlflow": mlflow_rows,
    "tensorboard": tensorboard_rows,
    "trackio": trackio_rows,
    "wandb": wandb_rows,
}


class Watching:
    """A sink that can break a run off."""

    def __init__(self, crash_after: int | None = None) -> None:
        self.records: list[Record] = []
        self._crash_after = crash_after

    def write(self, record: Record) -> None:
        self.records.append(record)
        if isinstance(record, MetricsRow) and record.step == self._crash_after:
            raise KeyboardInterrupt

    def close(self) -> None: ...


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "mine.py").write_text(MINE)
    rows = [{"prompt": f"say {n}", "completion": str(n)} for n in range(12)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "dataset_path": str(tmp_path / "rows.jsonl"),
        "batch_size": 2,
        "log_path": str(tmp_path / "one"),
        "evaluators": f"{tmp_path}/mine.py:evaluator",
        "eval_every": 2,
        "wandb_project": "kitchen",
    }


async def _run(config: dict[str, Any], watching: Watching | None = None, service: FakeService | None = None) -> Any:
    adapters = Adapters(service=(service or FakeService()).connect, sinks=[watching or Watching()])
    return await run_async("supervised", config, adapters=adapters)


def _same(rows: Sequence[Row], metrics: Sequence[Row], *, tool: str = "") -> None:
    def by_step(given: Sequence[Row]) -> list[Row]:
        number = np.float32 if tool == "tensorboard" else float  # TensorBoard has single precision
        plain = [{name: value if isinstance(value, str) else number(value) for name, value in r.items()} for r in given]
        return sorted(plain, key=lambda row: int(row["step"]))

    assert by_step(rows) == by_step(metrics)


def _timeless(rows: Sequence[Row]) -> list[Row]:
    """Without what is not the same when a step is computed again."""
    return [
        {name: value for name, value in row.items() if not name.startswith("time/") and name != "test/verdict"}
        for row in rows
    ]


async def test_every_tool_holds_what_metrics_jsonl_holds(config: dict[str, Any], tmp_path: Path) -> None:
    await _run({**config, "sinks": ",".join(TOOLS)})
    metrics = read_metrics(tmp_path / "one" / "metrics.jsonl")
    assert [row["step"] for row in metrics] == [0, 1, 2, 3, 4, 5, 6]
    assert metrics[2]["test/verdict"] == "<b>géneral</b>\nanswer 2"
    assert "test/unmeasured" not in metrics[2]
    for tool, read in TOOLS.items():
        _same(read(tmp_path / "one"), metrics, tool=tool)


@pytest.mark.parametrize("name", TOOLS)
async def test_a_crashed_run_goes_on_in_the_same_run_of_the_tool(
    config: dict[str, Any], tmp_path: Path, name: str
) -> None:
    # The tool has seen steps that the last checkpoint has not; none may stand in it twice, or be missing.
    settings, service = {**config, "sinks": name, "save_every": 2}, FakeService()
    with pytest.raises(KeyboardInterrupt):
        await _run(settings, Watching(crash_after=3), service)
    before = None if name == "tensorboard" else read_tracker_run(tmp_path / "one", name)
    await _run({**settings, "behavior_if_log_dir_exists": "resume"}, service=service)
    metrics = read_metrics(tmp_path / "one" / "metrics.jsonl")
    _same(_timeless(TOOLS[name](tmp_path / "one")), _timeless(metrics), tool=name)
    if name != "tensorboard":
        after = read_tracker_run(tmp_path / "one", name)
        assert before is not None
        assert after is not None
        assert (after.id, after.name, after.project) == (before.id, before.name, "kitchen")
        assert after.step == 6


async def test_what_a_tool_knows_besides(config: dict[str, Any], tmp_path: Path) -> None:
    import trackio
    from mlflow import MlflowClient

    folder, project = tmp_path / "one", tmp_path.name  # Trackio keeps the projects of all tests in one place
    settings = {"wandb_project": project, "wandb_name": "baseline", "learning_rate": 3e-4}
    await _run({**config, **settings, "sinks": "wandb,trackio,mlflow"})
    records = wandb_records(folder)
    [run] = {(r.run.project, r.run.display_name) for r in records if r.WhichOneof("record_type") == "run"}
    assert run == (project, "baseline")
    given = {item.key: item.value_json for r in records for item in r.run.config.update}
    assert (given["learning_rate"], given["recipe"]) == ("0.0003", '"supervised"')
    assert [r.exit.exit_code for r in records if r.WhichOneof("record_type") == "exit"] == [0]

    client = MlflowClient()
    kept = read_tracker_run(folder, "mlflow")
    assert kept is not None
    found = client.get_run(kept.id)
    assert (found.info.run_name, found.info.status) == ("baseline", "FINISHED")
    assert found.data.params["learning_rate"] == "0.0003"
    assert client.get_experiment(found.info.experiment_id).name == project

    [tracked] = trackio.Api().runs(project)
    assert tracked.name == "baseline"
    assert tracked.config["learning_rate"] == 3e-4


async def test_a_run_that_breaks_is_not_finished_there(config: dict[str, Any], tmp_path: Path) -> None:
    from mlflow import MlflowClient

    with pytest.raises(KeyboardInterrupt):
        await _run({**config, "sinks": "wandb,mlflow"}, Watching(crash_after=1))
    kept = read_tracker_run(tmp_path / "one", "mlflow")
    assert kept is not None
    assert MlflowClient().get_run(kept.id).info.status in {"FAILED", "KILLED"}
    [exit_code] = [r.exit.exit_code for r in wandb_records(tmp_path / "one") if r.WhichOneof("record_type") == "exit"]
    assert exit_code != 0


async def test_a_project_alone_is_a_run_in_wandb(config: dict[str, Any], tmp_path: Path) -> None:
    await _run(config)
    assert len(wandb_rows(tmp_path / "one")) == 7


@pytest.mark.parametrize(("status", "code"), [("success", 1), ("errored", 2), (None, 2)])
def test_opentelemetry_is_told_at_once_and_how_it_ended(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch, status: str | None, code: int
) -> None:
    # Catches a run that a collector hears of when it is over, and one that broke and looks as if it had not.
    from cookhouse.telemetry.sinks import opentelemetry

    monkeypatch.setattr(opentelemetry, "_FLUSH_SECONDS", 0.0)
    folder = tmp_path / f"run-{status}"
    folder.mkdir()
    sink = opentelemetry.make_sink(folder, {})
    sink.write(Event(name="run.start"))
    assert [log.event_name for log in collector.logs(folder.name)] == ["run.start"]
    if status is not None:
        sink.write(Event(name="run.end", text={"status": status}))
    sink.close()
    [root] = collector.spans(folder.name)
    assert (root.name, root.status.code) == ("run", code)


async def test_opentelemetry_has_a_span_of_each_stage_in_one_trace(
    config: dict[str, Any], tmp_path: Path, collector: Collector
) -> None:
    watching = Watching()
    await _run({**config, "sinks": "opentelemetry"}, watching)
    spans = collector.spans("one")
    [root] = [span for span in spans if not span.parent_span_id]
    assert (root.name, root.status.code) == ("run", 1)
    assert attributes(root.attributes)["cookhouse.batch_size"] == 2
    assert {span.trace_id for span in spans} == {root.trace_id}
    assert {span.parent_span_id for span in spans} == {b"", root.span_id}
    names = [span.name for span in spans]
    assert {"init_session", "get_batch", "forward_backward", "optim_step", "log_step_metrics", "save_final"} < set(
        names
    )
    assert names.count("optim_step") == 6
    assert all(0 < span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)

    events = [log for log in collector.logs("one") if log.event_name != "metrics"]
    expected = [record.name for record in watching.records if isinstance(record, Event)]
    assert [log.event_name for log in events] == expected[expected.index("run.start") :]
    assert {log.trace_id for log in events} == {root.trace_id}
    rows = [log for log in collector.logs("one") if log.event_name == "metrics"]
    _same(
        [attributes(row.attributes) | plain(row.body) for row in rows], read_metrics(tmp_path / "one" / "metrics.jsonl")
    )
    gauges = {metric.name: metric.gauge.data_points[-1].as_double for metric in collector.metrics("one")}
    assert gauges["test/share"] == 1 / 3


async def test_a_collector_that_goes_away_never_stops_a_run(
    config: dict[str, Any], tmp_path: Path, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    class Breaking(Watching):
        def write(self, record: Record) -> None:
            super().write(record)
            if isinstance(record, Event) and record.name == "run.start":
                collector.status = 400

    watching = Breaking()
    result = await _run({**config, "sinks": "opentelemetry"}, watching)
    assert result.summary.num_steps == 6
    failed = [r.text for r in watching.records if isinstance(r, Event) and r.name == "telemetry.failed"]
    assert [text["sink"] for text in failed] == ["opentelemetry"]
    assert caplog.text.count("telemetry sink opentelemetry failed") == 1
    assert len(read_metrics(tmp_path / "one" / "metrics.jsonl")) == 7


async def test_a_tool_that_breaks_in_the_middle_stops_neither_the_run_nor_the_others(
    config: dict[str, Any], tmp_path: Path
) -> None:
    watching = Watching()
    await _run({**config, "sinks": f"{tmp_path}/mine.py:Crashing,tensorboard"}, watching)
    failed = [r.text for r in watching.records if isinstance(r, Event) and r.name == "telemetry.failed"]
    assert [text["error"] for text in failed] == ["OSError: no space"]
    metrics = read_metrics(tmp_path / "one" / "metrics.jsonl")
    _same(tensorboard_rows(tmp_path / "one"), metrics, tool="tensorboard")


async def test_a_sink_that_cannot_start_ends_those_that_have(
    config: dict[str, Any], tmp_path: Path, collector: Collector
) -> None:
    # Catches a run of a tool that stays open for ever, and a run directory left behind.
    collector.status = 400
    with pytest.raises(InputError, match="sink opentelemetry cannot start"):
        await _run({**config, "sinks": "tensorboard,opentelemetry"})
    assert not (tmp_path / "one").exists()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("sink ")]


async def test_a_run_deleted_in_mlflow_is_a_new_one_there(config: dict[str, Any], tmp_path: Path) -> None:
    from mlflow import MlflowClient

    settings, service = {**config, "sinks": "mlflow", "save_every": 2}, FakeService()
    with pytest.raises(KeyboardInterrupt):
        await _run(settings, Watching(crash_after=3), service)
    first = read_tracker_run(tmp_path / "one", "mlflow")
    assert first is not None
    MlflowClient().delete_run(first.id)
    await _run({**settings, "behavior_if_log_dir_exists": "resume"}, service=service)
    second = read_tracker_run(tmp_path / "one", "mlflow")
    assert second is not None
    assert second.id != first.id
    assert MlflowClient().get_run(second.id).info.status == "FINISHED"
