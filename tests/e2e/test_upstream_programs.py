"""The published cookbook's own programs, as they are, against our server. Those that learn from rewards are against
`serve --stable-reinforce own`: `stable_reinforce` is what they train by unless they are told otherwise.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import Cookhouse, exported_by
from tests.e2e.qwen3_5 import save_qwen3_5

from cookhouse.assets import data_file, resolve_model

pytest.importorskip("tinker_cookbook", reason="needs tinker-cookbook, which `make` installs")

pytestmark = pytest.mark.slow

NAME = "Qwen/Qwen3.5-4B"
"""One that theirs knows; small models are served under it."""
OWN = "--stable-reinforce", "own"
# What theirs takes for granted: packages that read files of a cloud, parse LaTeX and color a terminal, a tokenizer of
# the hub, and a judge with a long context.
PREPARE = """
import asyncio, json, sys, types

def stand_in(name, **content):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(content)
    return sys.modules[name]

stand_in("blobfile")
stand_in("termcolor", colored=lambda text, *args, **options: text)
stand_in("pylatexenc", latex2text=stand_in("pylatexenc.latex2text"))
import transformers
from tinker_cookbook import tokenizer_utils
address, folder, tokenizer, model = sys.argv[1:5]
tokenizer_utils.get_tokenizer = lambda name: transformers.AutoTokenizer.from_pretrained(tokenizer)
"""
SL_LOOP = (
    PREPARE
    + """
import datasets
from tinker_cookbook.recipes import sl_loop

rows = [json.loads(line) for line in open("rows.jsonl")]
datasets.load_dataset = lambda *names: datasets.DatasetDict(train=datasets.Dataset.from_list(rows))
sl_loop.main(sl_loop.Config(
    base_url=address, log_path=folder, model_name=model, batch_size=4, learning_rate=2e-3, save_every=2, max_steps=4
))
"""
)
# The reward is of what a small model may do or not: it never writes an answer in a box.
RL_LOOP = (
    PREPARE
    + """
import datasets
from tinker_cookbook.recipes import rl_loop

rows = [{"question": f"What is {number} + 1?", "answer": f"#### {number + 1}"} for number in range(12)]
datasets.load_dataset = lambda *names: datasets.DatasetDict(train=datasets.Dataset.from_list(rows))
rl_loop.get_reward = lambda response, answer: float(len(response) % 2)
rl_loop.main(rl_loop.Config(
    base_url=address, log_path=folder, model_name=model, batch_size=4, group_size=6, max_tokens=6, lora_rank=4,
    learning_rate=1e-3, save_every=0,
))
"""
)
# Each by its own way of sampling and training: in steps, in steps that stream, ahead of training, and with a judge.
TRAINERS = (
    PREPARE
    + """
from tinker_cookbook.recipes.math_rl import train as math_rl
from tinker_cookbook.recipes.rubric import env as rubric_env, train as rubric
from tinker_cookbook.rl.train import StreamMinibatchConfig
from tinker_cookbook.recipes.rubric.data import Rubric, RubricBasedDatapoint

common = dict(
    base_url=address, model_name=model, lora_rank=4, groups_per_batch=2, max_steps=1,
    max_tokens=5, eval_every=0, save_every=0,
)
judge = rubric_env.TinkerMessageCompleter
rubric_env.TinkerMessageCompleter = lambda **options: judge(**{**options, "max_tokens": 16})
example = RubricBasedDatapoint([{"role": "user", "content": "What is 2 + 3?"}], [Rubric("Is it right?")]).to_json()
open("examples.jsonl", "w").write(4 * (example + "\\n"))
configs = {
    "steps": math_rl.CLIConfig(log_path=folder + "/steps", **common),
    "stream": math_rl.CLIConfig(
        log_path=folder + "/stream",
        stream_minibatch_config=StreamMinibatchConfig(groups_per_batch=2, num_minibatches=2), **common,
    ),
    "ahead": math_rl.CLIConfig(log_path=folder + "/ahead", max_steps_off_policy=1, **common),
    "judge": rubric.CLIConfig(
        log_path=folder + "/judge", grader_llm_name=model,
        train_jsonl_path="examples.jsonl", test_jsonl_path="examples.jsonl", **common,
    ),
}
for name in sys.argv[5:]:
    program = rubric if name == "judge" else math_rl
    asyncio.run(asyncio.wait_for(program.cli_main(configs[name]), 100))
"""
)


@pytest.fixture(scope="module")
def tiny() -> str:
    return resolve_model("cookhouse/tiny")


@pytest.fixture(scope="module")
def qwen3_5(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_qwen3_5(tmp_path_factory.mktemp("qwen3_5"))


def run(cookhouse: Cookhouse, model: str, program: str, *names: str, options: Sequence[str] = OWN) -> Any:
    """Run a program against a new server of a model's folder; what it ended with."""
    server = cookhouse.start("serve", "--port", "0", "--state-dir", "state", "-m", f"{NAME}={model}", *options)
    exports = exported_by(server)
    return cookhouse.python(program, exports["TINKER_BASE_URL"], "theirs", model, NAME, *names, env=exports)


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def test_the_published_loop_of_examples_learns(cookhouse: Cookhouse, qwen3_5: str) -> None:
    """Catches a folder of a published architecture that is not served under the published name."""
    lines = data_file("conversations/train.jsonl").read_text(encoding="utf-8").splitlines()[:16]
    (cookhouse.folder / "rows.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    done = run(cookhouse, qwen3_5, SL_LOOP, options=())
    assert done.returncode == 0, done.stdout + done.stderr
    rows = metrics(cookhouse.folder / "theirs")
    losses = [row["train_mean_nll"] for row in rows if "train_mean_nll" in row]
    assert len(losses) == 4
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("model", ["tiny", "qwen3_5"])
def test_the_published_loop_of_rewards_learns(model: str, cookhouse: Cookhouse, request: pytest.FixtureRequest) -> None:
    """Catches spans of theirs that our checks refuse, and a loss that gives no gradient."""
    done = run(cookhouse, request.getfixturevalue(model), RL_LOOP)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = metrics(cookhouse.folder / "theirs")
    assert len(rows) == 3
    assert all(row["grad_norm"] > 0 for row in rows)


def test_the_published_trainers_run_with_their_default_loss(cookhouse: Cookhouse, tiny: str) -> None:
    """Catches a program that our server leaves waiting, or whose data it refuses."""
    names = "steps", "stream", "ahead", "judge"
    done = run(cookhouse, tiny, TRAINERS, *names)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in names:
        assert sum("grad_norm" in row for row in metrics(cookhouse.folder / "theirs" / name)) == 1, name


def test_a_trainer_that_streams_ends_where_its_loss_is_refused(cookhouse: Cookhouse, tiny: str) -> None:
    """It samples in tasks that nobody waits for: a refusal there left it waiting for ever."""
    done = run(cookhouse, tiny, TRAINERS, "stream", options=())
    assert done.returncode != 0
    assert "loss 'stable_reinforce' is refused: its objective is not published" in done.stderr
    assert "TimeoutError" not in done.stderr
