"""The published cookbook's own flat loop, against our server: the losses of ours, on the same data in one order."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import Cookhouse, exported_by

from cookhouse.assets import data_file, resolve_model

pytest.importorskip("tinker_cookbook", reason="needs tinker-cookbook, which `make` installs")

pytestmark = pytest.mark.slow

BATCH_SIZE, NUM_STEPS, LEFT_OVER, SEED = 8, 12, 5, 3
# What theirs takes for granted: a set of the hub, a model that it knows by name, and an adapter of any seed.
UPSTREAM = """
import functools, json, sys, types
sys.modules["blobfile"] = types.ModuleType("blobfile")  # reads files of a cloud, of which there are none
import datasets, tinker, transformers
from tinker_cookbook import model_info
from tinker_cookbook.recipes import sl_loop

rows, folder, model, address, seed, batch_size = sys.argv[1:]
given = datasets.Dataset.from_list([json.loads(line) for line in open(rows)])
datasets.load_dataset = lambda name: datasets.DatasetDict(train=given)
sl_loop.get_tokenizer = lambda name: transformers.AutoTokenizer.from_pretrained(model)
model_info.get_recommended_renderer_name = lambda name: "qwen3_instruct"
create = tinker.ServiceClient.create_lora_training_client
tinker.ServiceClient.create_lora_training_client = functools.partialmethod(create, seed=int(seed))
sl_loop.main(sl_loop.Config(
    base_url=address, log_path=folder, model_name="cookhouse/tiny", batch_size=int(batch_size), learning_rate=2e-3,
    lora_rank=8, save_every=0,
))
"""


def test_the_published_loop_has_the_losses_of_ours(cookhouse: Cookhouse) -> None:
    """Catches an optimizer, a loss, a shift or a schedule of ours that is not the published one."""
    num_rows = NUM_STEPS * BATCH_SIZE
    rows = _first_conversations(num_rows + LEFT_OVER)
    _write(cookhouse.folder / "theirs.jsonl", rows)
    _write(cookhouse.folder / "ours.jsonl", _before_our_shuffle(_after_their_shuffle(rows)[:num_rows]))
    server = cookhouse.start("serve", "--port", "0", "--state-dir", "state", env={"COOKHOUSE_PRECISION": "float32"})
    exports = exported_by(server)
    done = cookhouse.python(
        UPSTREAM,
        *("theirs.jsonl", "theirs", resolve_model("cookhouse/tiny"), exports["TINKER_BASE_URL"]),
        *(str(SEED), str(BATCH_SIZE)),
        env=exports,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    settings = ("learning_rate=2e-3", "lora_rank=8", f"batch_size={BATCH_SIZE}", f"seed={SEED}", "reduction=mean")
    done = cookhouse.run("run", "sl_loop", "dataset_path=ours.jsonl", "log_path=ours", *settings, env=exports)
    assert done.returncode == 0, done.stdout + done.stderr
    theirs = _column(cookhouse.folder / "theirs", "train_mean_nll")
    ours = _column(cookhouse.folder / "ours", "train/loss")
    assert len(theirs) == len(ours) == NUM_STEPS
    assert theirs == pytest.approx(ours, abs=1e-4)
    assert ours[-1] < 0.8 * ours[0], "nothing was learned, so that any two loops would agree"


def _first_conversations(count: int) -> list[dict[str, Any]]:
    lines = data_file("conversations/train.jsonl").read_text(encoding="utf-8").splitlines()
    return [{"messages": json.loads(line)["messages"]} for line in lines[:count]]


def _after_their_shuffle(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    from datasets import Dataset

    order = Dataset.from_list([{"row": number} for number in range(len(rows))]).shuffle(seed=0)
    return [rows[number] for number in order["row"]]


def _before_our_shuffle(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows in the order from which the first epoch of our seed goes through them as they stand."""
    order = list(range(len(rows)))
    random.Random(f"{SEED}/0").shuffle(order)
    placed = dict(zip(order, rows, strict=True))
    return [placed[number] for number in range(len(rows))]


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _column(folder: Path, name: str) -> list[float]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [row[name] for row in rows if name in row]
