"""`cookhouse run supervised` from the first word to the next command, on the local engine."""

import json
import os
import re
import shlex
import signal

import pytest
from tests.e2e.conftest import SETTINGS, STEPS, Cookhouse, Reference, losses
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.slow


def test_a_run_reports_before_and_after_and_what_to_type_next(reference: Reference) -> None:
    out = reference.stdout
    assert "no TINKER_API_KEY or TINKER_BASE_URL: running on this machine with the local engine" in out
    assert f"step {STEPS}/{STEPS}  loss" in out
    assert "\x1b" not in out, "a pipe gets plain lines"
    assert "\r" not in out
    for figure in (
        "held-out loss (nats per token)",
        "held-out exact match",
        "prompt ",
        "before ",
        "after ",
        "run directory",
    ):
        assert figure in out
    assert "cookhouse sample " in out


def test_a_run_folder_holds_config_metrics_and_checkpoints(reference: Reference) -> None:
    config = json.loads((reference.folder / "config.json").read_text())["config"]
    assert config["seed"] == 7
    assert config["renderer_name"] == "qwen3_instruct"
    assert len(reference.losses) == STEPS
    last = json.loads((reference.folder / "checkpoints.jsonl").read_text().splitlines()[-1])
    assert last["final"] is True
    assert last["sampler_path"].startswith("tinker://")


def test_loss_falls(reference: Reference) -> None:
    values = [reference.losses[step] for step in sorted(reference.losses)]
    assert sum(values[-5:]) < sum(values[:5])


def test_the_same_seed_gives_the_same_losses_to_the_bit_on_a_terminal(
    cookhouse: Cookhouse, reference: Reference
) -> None:
    code, drawn = cookhouse.run_in_terminal("run", "supervised", *SETTINGS, "log_path=again")
    assert code == 0, drawn
    assert re.search(r"step \d+/24  loss \d+\.\d+  [\d,]+ tokens/s  \d+:\d\d left", drawn)
    assert "\x1b[" in drawn, "a terminal gets a line that is redrawn"
    assert losses(cookhouse.folder / "again") == reference.losses


def resume_command(output: str) -> list[str]:
    """The words after `cookhouse` in the command that continues a run, as printed."""
    [line] = [line for line in output.splitlines() if "behavior_if_log_dir_exists=resume" in line]
    words = shlex.split(line)
    return words[words.index("cookhouse") + 1 :]


def test_ctrl_c_saves_and_the_printed_command_continues_to_the_bit(cookhouse: Cookhouse, reference: Reference) -> None:
    output = cookhouse.interrupt("stopped", signal.SIGINT, after_steps=7)
    assert "interrupted and saved after" in output, output
    assert not cookhouse.servers()
    before = losses(cookhouse.folder / "stopped")
    assert 7 <= len(before) < STEPS
    done = cookhouse.run(*resume_command(output))
    assert done.returncode == 0, done.stderr
    after = losses(cookhouse.folder / "stopped")
    assert {step: after[step] for step in before} == before, "a step that was saved was done again"
    assert after == reference.losses


@pytest.mark.parametrize(
    ("sent", "under", "to_group"),
    [
        # Told to stop, it does what it does when the time is over: the signal goes to the run, and to its group.
        (signal.SIGTERM, ("timeout", "1h"), False),
        (signal.SIGINT, (), True),
    ],
    ids=["timeout", "SIGINT to the group"],
)
def test_however_a_signal_is_sent_the_run_saves_and_says_how_to_go_on(
    sent: signal.Signals, under: tuple[str, ...], to_group: bool, cookhouse: Cookhouse
) -> None:
    """Would catch a run that takes one signal for two, and a server that goes before the run has saved."""
    name = f"group-{sent.name}-{len(under)}"
    output = cookhouse.interrupt(name, sent, after_steps=1, under=under, to_group=to_group)
    assert "interrupted and saved after" in output, output
    saved = [json.loads(line) for line in (cookhouse.folder / name / "checkpoints.jsonl").read_text().splitlines()]
    assert saved[-1]["batch"] == len(losses(cookhouse.folder / name)), "a step was done and not saved"
    assert f"run supervised log_path={name} behavior_if_log_dir_exists=resume" in output
    assert not cookhouse.servers()


def test_a_killed_client_leaves_no_server_and_loses_no_more_than_since_its_checkpoint(
    cookhouse: Cookhouse, reference: Reference
) -> None:
    cookhouse.interrupt("killed", signal.SIGKILL, after_steps=8)
    wait_until(lambda: not cookhouse.servers())
    checkpoints = (cookhouse.folder / "killed" / "checkpoints.jsonl").read_text().splitlines()
    assert checkpoints, "nothing was saved in eight steps with save_every=5"
    done = cookhouse.run("run", "supervised", "log_path=killed", "behavior_if_log_dir_exists=resume")
    assert done.returncode == 0, done.stderr
    assert losses(cookhouse.folder / "killed") == reference.losses


def test_a_server_that_is_killed_twice_is_started_again_and_the_run_loses_nothing(
    cookhouse: Cookhouse, reference: Reference
) -> None:
    process = cookhouse.start("run", "supervised", *SETTINGS, "log_path=twice")
    for steps in (4, 12):
        wait_until(lambda: len(losses(cookhouse.folder / "twice")) >= steps or process.poll() is not None)  # noqa: B023
        [server] = cookhouse.servers()
        os.kill(server, signal.SIGKILL)
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, output
    assert output.count("the embedded server died (signal 9); it is started again, and work goes on") == 2
    assert output.count("restored 1 models of 1 sessions") == 2
    assert losses(cookhouse.folder / "twice") == reference.losses
    assert not cookhouse.servers()


def test_a_server_that_is_killed_again_and_again_ends_the_run_with_a_way_to_continue(cookhouse: Cookhouse) -> None:
    process = cookhouse.start("run", "supervised", *SETTINGS, "log_path=orphan")
    wait_until(lambda: len(losses(cookhouse.folder / "orphan")) >= 6)
    killed: set[int] = set()
    while len(killed) < 3:
        wait_until(lambda: set(cookhouse.servers()) - killed or process.poll() is not None)
        assert process.poll() is None, process.communicate()[0]
        for server in set(cookhouse.servers()) - killed:
            os.kill(server, signal.SIGKILL)
            killed.add(server)
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1
    assert "the embedded server died (signal 9); it is started again, and work goes on" in output
    assert "it is not started again: it has died 3 times" in output
    assert "Traceback" not in output
    assert resume_command(output)
