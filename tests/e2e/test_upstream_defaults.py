"""The published cookbook's programs with the model that they take by default, against our server."""

import json
from pathlib import Path

import pytest
from tests.e2e.conftest import Cookhouse, exported_by
from tests.e2e.qwen3_5 import save_qwen3_5

from cookhouse.assets import data_file

pytest.importorskip("tinker_cookbook", reason="needs tinker-cookbook, which `make` installs")

pytestmark = pytest.mark.slow

NAME = "Qwen/Qwen3.5-4B"
# What they take from the hub: a set, and the tokenizer of a model that they know by name.
_FROM_DISK = """
import json, sys, types
sys.modules["blobfile"] = types.ModuleType("blobfile")  # reads files of a cloud, of which there are none
import datasets, transformers

rows, folder, model, name, address = sys.argv[1:]
given = datasets.Dataset.from_list([json.loads(line) for line in open(rows)])
datasets.load_dataset = lambda *names: datasets.DatasetDict(train=given)
"""
SL_LOOP = f"""{_FROM_DISK}
from tinker_cookbook.recipes import sl_loop
sl_loop.get_tokenizer = lambda name: transformers.AutoTokenizer.from_pretrained(model)
sl_loop.main(sl_loop.Config(
    base_url=address, log_path=folder, model_name=name, batch_size=4, learning_rate=2e-3, save_every=2, max_steps=4
))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_qwen3_5(tmp_path_factory.mktemp("qwen3_5"))


def test_sl_loop_trains_the_model_that_it_names(cookhouse: Cookhouse, model: str) -> None:
    """Catches a folder of a published architecture that is not served under the published name."""
    lines = data_file("conversations/train.jsonl").read_text(encoding="utf-8").splitlines()[:16]
    (cookhouse.folder / "rows.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    losses = [row["train_mean_nll"] for row in _metrics(cookhouse, SL_LOOP, model) if "train_mean_nll" in row]
    assert len(losses) == 4
    assert losses[-1] < losses[0]


def _metrics(cookhouse: Cookhouse, program: str, model: str, *options: str) -> list[dict[str, float]]:
    """What a program over `rows.jsonl` logs, against a server that has the model under the published name."""
    server = cookhouse.start("serve", "--port", "0", "--state-dir", "state", "-m", f"{NAME}={model}", *options)
    exports = exported_by(server)
    arguments = ("rows.jsonl", "theirs", model, NAME, exports["TINKER_BASE_URL"])
    done = cookhouse.python(program, *arguments, env=exports)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = Path(cookhouse.folder / "theirs" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
