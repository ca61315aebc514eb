"""The same recipe against `cookhouse serve`, as it would run against the hosted service: another address and key."""

import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import tinker
from tests.e2e.conftest import Cookhouse, Reference, exported_by, losses
from tests.waiting import PATIENCE_SECONDS

from cookhouse.assets import resolve_model

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cookhouse]:
    command = Cookhouse(tmp_path_factory.mktemp("serve"))
    yield command
    command.close()


@pytest.fixture(scope="module")
def server(terminal: Cookhouse) -> subprocess.Popen[str]:
    return terminal.start("serve", "--port", "0", "--state-dir", "state")


@pytest.fixture(scope="module")
def exports(server: subprocess.Popen[str]) -> Mapping[str, str]:
    return exported_by(server)


def test_the_same_recipe_gives_the_same_losses(
    cookhouse: Cookhouse, exports: Mapping[str, str], reference: Reference
) -> None:
    done = cookhouse.supervised("log_path=served", env=exports)
    assert f"training at {exports['TINKER_BASE_URL']}" in done.stdout
    assert "embedded" not in done.stdout
    assert not (cookhouse.folder / "served" / "service").exists(), "it started a server of its own"
    assert losses(cookhouse.folder / "served") == reference.losses


def test_a_base_model_can_be_sampled(cookhouse: Cookhouse, exports: Mapping[str, str]) -> None:
    done = cookhouse.run("sample", "cookhouse/tiny", "What is 2 plus 2?", "--max-tokens", "8", env=exports)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_a_wrong_key_is_refused_in_one_line(cookhouse: Cookhouse, exports: Mapping[str, str]) -> None:
    done = cookhouse.run("run", "supervised", env={**exports, "TINKER_API_KEY": "tml-wrong"})
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert "key" in done.stderr


def test_an_address_where_nobody_answers_fails_at_once(cookhouse: Cookhouse) -> None:
    nobody = {"TINKER_BASE_URL": "http://127.0.0.1:9", "TINKER_API_KEY": "tml-any"}
    done = cookhouse.run("run", "supervised", env=nobody)
    assert done.returncode == 1
    assert done.stderr.startswith("error: no service answers at http://127.0.0.1:9")
    assert "Traceback" not in done.stderr


def test_a_device_that_there_is_not_is_told_in_one_line(cookhouse: Cookhouse) -> None:
    """Would catch options that never reach the engine."""
    done = cookhouse.run("serve", "--port", "0", "--state-dir", "state", "--device", "cuda:99")
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ")
    assert "device 'cuda:99'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_ctrl_c_stops_the_server(
    terminal: Cookhouse, server: subprocess.Popen[str], exports: Mapping[str, str]
) -> None:
    """Last in this module: it ends the server of the others."""
    assert exports
    assert terminal.servers()
    server.send_signal(signal.SIGINT)
    output, _ = server.communicate(timeout=PATIENCE_SECONDS)
    assert server.returncode == 0
    assert "Traceback" not in output
    assert not terminal.servers()


def test_two_models_one_under_a_published_name(tmp_path: Path) -> None:
    """Would catch a server of the last -m alone, and an engine that looks for a folder by its published name."""
    command = Cookhouse(tmp_path)
    models = ("-m", "cookhouse/tiny", "-m", f"Qwen/Qwen3-8B={resolve_model('cookhouse/tiny')}")
    try:
        exports = exported_by(command.start("serve", "--port", "0", "--state-dir", "state", *models))
        with tinker.ServiceClient(base_url=exports["TINKER_BASE_URL"], api_key=exports["TINKER_API_KEY"]) as client:
            prompt = tinker.ModelInput.from_ints([3, 17, 4, 9])
            samplers = [
                client.create_lora_training_client(base_model=name, rank=4)
                .result()
                .save_weights_and_get_sampling_client()
                .result()
                for name in ("cookhouse/tiny", "Qwen/Qwen3-8B:peft:262144")
            ]
            one, other = (sampler.compute_logprobs(prompt).result() for sampler in samplers)
            assert one == other
    finally:
        command.close()
