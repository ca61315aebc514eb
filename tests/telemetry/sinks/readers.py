"""What the files of each tool hold, as rows of metrics.jsonl: read back by the tool's own library."""

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cookhouse.telemetry.sinks.tracked import read_tracker_run

Row = dict[str, Any]


def wandb_rows(folder: Path) -> Sequence[Row]:
    """From the files that `wandb sync` would send. W&B adds names of its own, with a leading underscore."""
    rows = []
    for record in wandb_records(folder):
        if record.WhichOneof("record_type") == "history":
            items = {"/".join(item.nested_key) or item.key: item.value_json for item in record.history.item}
            values = {name: json.loads(value) for name, value in items.items()}
            rows.append({"step": values["_step"]} | {k: v for k, v in values.items() if not k.startswith("_")})
    return rows


def wandb_records(folder: Path) -> Sequence[Any]:
    """Every record of the offline runs in a run directory, oldest first."""
    return [record for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")) for record in _finished(path)]


def _finished(path: Path) -> Sequence[Any]:
    """The records of a run that is finished: W&B's own process writes the last ones after it has said so."""
    from wandb.proto.wandb_internal_pb2 import Record

    deadline = time.monotonic() + 30.0
    while True:
        records = [Record.FromString(data) for data in _leveldb_log(path.read_bytes())]
        if any(record.WhichOneof("record_type") == "exit" for record in records):
            return records
        assert time.monotonic() < deadline, f"{path} has no end"
        time.sleep(0.01)


def trackio_rows(folder: Path) -> Sequence[Row]:
    from trackio.sqlite_storage import SQLiteStorage

    run = read_tracker_run(folder, "trackio")
    assert run is not None
    logs = SQLiteStorage.get_logs(run.project, run.name, run_id=run.id)
    return [{name: value for name, value in row.items() if name != "timestamp"} for row in logs]


def mlflow_rows(folder: Path) -> Sequence[Row]:
    import mlflow
    from mlflow import MlflowClient

    run = read_tracker_run(folder, "mlflow")
    assert run is not None
    client = MlflowClient()
    rows: dict[int, Row] = defaultdict(dict)
    for name in client.get_run(run.id).data.metrics:
        for metric in client.get_metric_history(run.id, name):
            assert name not in rows[metric.step], "a metric is logged twice"
            rows[metric.step][name] = metric.value
    for artifact in client.list_artifacts(run.id, "text"):
        step = int(artifact.path.removeprefix("text/step-").removesuffix(".json"))
        rows[step] |= mlflow.artifacts.load_dict(f"runs:/{run.id}/{artifact.path}")
    return [{"step": step, **row} for step, row in rows.items()]


def tensorboard_rows(folder: Path) -> Sequence[Row]:
    """As TensorBoard's own server reads them."""
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(folder / "tensorboard"), tensor_size_guidance={"scalars": 0, "text": 0})
    events.Reload()
    rows: dict[int, Row] = defaultdict(dict)
    for tag in events.Tags()["tensors"]:
        plugin = events.SummaryMetadata(tag).plugin_data.plugin_name
        if plugin == "hparams":
            continue
        for event in events.Tensors(tag):
            value = make_ndarray(event.tensor_proto).item()
            assert tag not in rows[event.step], "a metric is written twice"
            rows[event.step][tag] = value.decode() if plugin == "text" else value
    return [{"step": step, **row} for step, row in rows.items()]


def _leveldb_log(data: bytes) -> Iterator[bytes]:
    """Records of a LevelDB log, which is what a .wandb file is behind its seven bytes of header.

    https://github.com/google/leveldb/blob/main/doc/log_format.md
    """
    block_bytes, header_bytes = 32768, 7
    position, parts = header_bytes, b""
    while position + header_bytes <= len(data):
        left = block_bytes - position % block_bytes
        if left < header_bytes:
            position += left
            continue
        length, kind = int.from_bytes(data[position + 4 : position + 6], "little"), data[position + 6]
        parts += data[position + header_bytes : position + header_bytes + length]
        position += header_bytes + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""
