"""One run after another on the local engine, each with a server of its own: the second begins where the first ended.

Run from Python, where the local engine starts as it does for the command line.
"""

import json
from pathlib import Path

import pytest
from tests.e2e.conftest import SETTINGS, Cookhouse, Reference

from cookhouse.telemetry import read_metrics

pytestmark = pytest.mark.slow

PROGRAM = """
import sys
import cookhouse

result = cookhouse.run(sys.argv[1], dict(word.split("=", 1) for word in sys.argv[2:]))
print("result:", result.summary.num_steps)
"""


def last_metrics(run_folder: Path) -> dict[str, float]:
    return read_metrics(run_folder / "metrics.jsonl")[-1]


@pytest.mark.parametrize("by", ["folder", "path", "model"])
def test_supervised_goes_on_from_the_weights_of_a_run(by: str, cookhouse: Cookhouse, reference: Reference) -> None:
    """The held-out loss before its first step is, to the bit, the one that the first run ended with."""
    saved = json.loads((reference.folder / "checkpoints.jsonl").read_text().splitlines()[-1])
    name = {"folder": str(reference.folder), "path": saved["state_path"], "model": "sums@production"}[by]
    if by == "model":
        for words in (("register", "sums", str(reference.folder)), ("promote", "sums@1", "production")):
            assert cookhouse.run("models", *words).returncode == 0
    second = reference.folder.parent / f"second-{by}"  # beside the first: there a path is looked for
    done = cookhouse.python(
        PROGRAM, "supervised", *SETTINGS[:1], "max_steps=1", *SETTINGS[2:], f"load_checkpoint_path={name}",
        f"log_path={second}",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "no TINKER_API_KEY or TINKER_BASE_URL: running on this machine with the local engine" in lines
    assert any(line.startswith("step 1/1  loss") for line in lines), "Python sees less progress than a terminal"
    assert lines[-1] == "result: 1"
    assert read_metrics(second / "metrics.jsonl")[0]["test/nll"] == last_metrics(reference.folder)["test/nll"]


def test_registered_weights_that_are_others_now_are_refused(cookhouse: Cookhouse) -> None:
    """From the command line: what a run registers has the checksum of the files that its engine wrote."""
    run = cookhouse.folder / "first"
    words = ("run", "supervised", *SETTINGS[:1], "max_steps=1", *SETTINGS[2:], "registered_model_name=sums")
    done = cookhouse.run(*words, f"log_path={run}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "registered     sums@1" in done.stdout
    shown = cookhouse.run("models", "show", "sums").stdout
    assert [line.count(" intact, sha256 ") for line in shown.splitlines() if "tinker://" in line] == [1, 1]
    manifests = list(run.glob("service/checkpoints/*/adapter.json"))
    for manifest in manifests:
        manifest.write_text(manifest.read_text() + " ")
    assert cookhouse.run("models", "show", "sums").stdout.count("CHANGED since they were registered") == 2
    for refused in (("sample", "sums@1", "hello"), ("checkpoints", "export", "sums@1", "out")):
        done = cookhouse.run(*refused)
        assert done.returncode == 2
        assert "error: the weights of sums@1 have changed since they were registered: the files in " in done.stderr


def test_reinforcement_goes_on_from_it_and_stays_near_it(cookhouse: Cookhouse, reference: Reference) -> None:
    """The divergence of its first rollouts from that run, as its reference, is the rounding of two computations.

    In bfloat16 they differ by about 0.01 a token; from the base model the run is nats away.
    """
    settings = ("batch_size=2", "group_size=2", "max_steps=1", "num_eval=0", "lora_rank=4", "kl_coef=0.1")
    name = reference.folder
    done = cookhouse.python(
        PROGRAM, "rl_basic", *settings, f"load_checkpoint_path={name}", f"kl_reference={name}", "log_path=rl",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert read_metrics(cookhouse.folder / "rl" / "metrics.jsonl")[0]["optim/kl_reference"] == pytest.approx(
        0.0, abs=0.05
    )


def test_sampling_finds_a_path_among_the_runs_here(cookhouse: Cookhouse, reference: Reference) -> None:
    (cookhouse.folder / "runs").symlink_to(reference.folder.parent)
    saved = json.loads((reference.folder / "checkpoints.jsonl").read_text().splitlines()[-1])
    done = cookhouse.run("sample", saved["sampler_path"], "What is 2 plus 2?", "--max-tokens", "4")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
