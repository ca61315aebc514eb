"""`cookhouse run rl_basic` through one server: the same rollouts after Ctrl-C and after kill -9, others when ahead."""

import os
import shlex
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.e2e.conftest import Cookhouse, exported_by
from tests.waiting import PATIENCE_SECONDS, wait_until

from cookhouse.service.local import stored_files
from cookhouse.telemetry import read_metrics
from cookhouse.weights.checkpoints import CheckpointFile

pytestmark = pytest.mark.slow

STEPS = 8
SETTINGS = (
    "batch_size=4",
    "group_size=4",
    f"max_steps={STEPS}",
    "save_every=3",
    "num_eval=2",
    "num_samples=1",
    "lora_rank=4",
    "seed=7",
)
REPEATED = (
    "optim/policy_loss",
    "optim/grad_norm",
    "optim/entropy",
    "env/all/reward/total",
    "env/all/ac_tokens_per_turn",
)


def steps(run_folder: Path) -> dict[int, tuple[float, ...]]:
    """What a run with the same seed repeats to the bit, by step."""
    rows = [row for row in read_metrics(run_folder / "metrics.jsonl") if "optim/policy_loss" in row]
    return {int(row["step"]): tuple(row[name] for name in REPEATED) for row in rows}


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cookhouse]:
    command = Cookhouse(tmp_path_factory.mktemp("serve"))
    yield command
    command.close()


@pytest.fixture(scope="module")
def exports(terminal: Cookhouse) -> Mapping[str, str]:
    return exported_by(terminal.start("serve", "--port", "0", "--state-dir", "state"))


@pytest.fixture(scope="module")
def whole(terminal: Cookhouse, exports: Mapping[str, str]) -> Path:
    """The folder of a run that nothing interrupted."""
    run(terminal, exports, "run", "rl_basic", *SETTINGS, "log_path=run")
    return terminal.folder / "run"


def run(cookhouse: Cookhouse, exports: Mapping[str, str], *arguments: str) -> str:
    """What a command printed that has to succeed."""
    done = cookhouse.run(*arguments, env=exports)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def stop(cookhouse: Cookhouse, exports: Mapping[str, str], sent: signal.Signals, *, after_steps: int) -> str:
    """Start the same run, send it a signal after some steps, and return what it printed."""
    folder = cookhouse.folder / "run"
    process = cookhouse.start("run", "rl_basic", *SETTINGS, "log_path=run", env=exports)
    wait_until(lambda: len(steps(folder)) >= after_steps or process.poll() is not None)
    process.send_signal(sent)
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert len(steps(folder)) < STEPS, output
    return output


@pytest.mark.usefixtures("fused_sampling")
def test_a_run_stopped_by_ctrl_c_goes_on_to_the_bit(
    cookhouse: Cookhouse, exports: Mapping[str, str], whole: Path
) -> None:
    """Catches seeds that hang on how often the run was started, and rollouts of weights that were not restored."""
    output = stop(cookhouse, exports, signal.SIGINT, after_steps=2)
    [line] = [line for line in output.splitlines() if "behavior_if_log_dir_exists=resume" in line]
    words = shlex.split(line)
    run(cookhouse, exports, *words[words.index("cookhouse") + 1 :])
    assert steps(cookhouse.folder / "run") == steps(whole)
    assert len(set(steps(whole).values())) == STEPS, "the steps are told apart by nothing"


@pytest.mark.usefixtures("fused_sampling")
def test_a_killed_run_goes_on_to_the_bit(cookhouse: Cookhouse, exports: Mapping[str, str], whole: Path) -> None:
    """Catches rollouts of the steps after the checkpoint, left on disk, being taken for those to come."""
    stop(cookhouse, exports, signal.SIGKILL, after_steps=4)
    run(cookhouse, exports, "run", "rl_basic", "log_path=run", "behavior_if_log_dir_exists=resume")
    assert steps(cookhouse.folder / "run") == steps(whole)


@pytest.mark.long
@pytest.mark.usefixtures("fused_sampling")
def test_an_embedded_run_whose_server_and_engine_are_killed_goes_on_to_the_bit(
    cookhouse: Cookhouse, terminal: Cookhouse, whole: Path
) -> None:
    """Catches rollouts or steps that are lost or done twice, and a run that ends because its server did."""
    folder = cookhouse.folder / "run"
    process = cookhouse.start("run", "rl_basic", *SETTINGS, "log_path=run")
    for after_steps, is_engine in ((1, False), (3, True), (5, False), (6, True)):
        wait_until(lambda: len(steps(folder)) >= after_steps or process.poll() is not None)  # noqa: B023
        [server] = cookhouse.servers()
        os.kill(engine_of(server) if is_engine else server, signal.SIGKILL)
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, output
    assert output.count("it is started again, and work goes on") == 2
    assert steps(folder) == steps(whole)
    ours = final_weights(folder, folder / "service")
    theirs = final_weights(whole, terminal.folder / "state")
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def engine_of(server: int) -> int:
    [engine] = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    return int(engine)


def final_weights(run_folder: Path, state_dir: Path) -> Mapping[str, torch.Tensor]:
    """With the optimizer's state."""
    last = CheckpointFile(run_folder / "checkpoints.jsonl").read()[-1]
    folder = stored_files(state_dir, str(last.state_path))
    assert folder is not None
    return {
        f"{file.name} {name}": tensor
        for file in folder.glob("*.safetensors")
        for name, tensor in load_file(file).items()
    }


def test_rollouts_ahead_are_one_step_old_at_most(cookhouse: Cookhouse, exports: Mapping[str, str], whole: Path) -> None:
    run(cookhouse, exports, "run", "rl_basic", *SETTINGS, "max_steps_off_policy=1", "metrics=all", "log_path=run")
    rows = read_metrics(cookhouse.folder / "run" / "metrics.jsonl")
    lags = [row["rollouts/lag_max"] for row in rows if "rollouts/lag_max" in row]
    assert len(lags) == STEPS
    assert max(lags) == 1
    assert steps(cookhouse.folder / "run") != steps(whole)


def test_the_trained_weights_answer(cookhouse: Cookhouse, exports: Mapping[str, str], whole: Path) -> None:
    """Catches a run directory of which `cookhouse sample` knows the renderer or the weights no more."""
    assert run(cookhouse, exports, "sample", str(whole), "--max-tokens", "8", "Compute 1 + 2.").strip()
