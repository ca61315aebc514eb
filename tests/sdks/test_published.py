"""Every published SDK against our server, over the engine: what it gets is what the newest one gets, to the bit.

`make test-sdks` installs each, without what it requires, into a folder of its own, and says where in `COOKHOUSE_SDKS`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cookhouse.server.access.hosted_rules import sdk_breaches
from cookhouse.server.settings import Settings
from tests.contract.conftest import make_torch_engine
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, Host, hosted

PROGRAM = Path(__file__).with_name("program.py")
FOLDER = Path(os.environ.get("COOKHOUSE_SDKS", "nowhere"))
SDKS = sorted(path.name for path in FOLDER.iterdir() if (path / "tinker").is_dir()) if FOLDER.is_dir() else []
TOO_OLD = "0.10.0"
NOT_HOSTED = [name for name in SDKS if name != TOO_OLD and sdk_breaches(name)]
"""Those that the hosted service serves no more."""
SECONDS = 240
Weights = Mapping[tuple[str, str], Any]
"""Digests of the tensors of checkpoints, by run, in its session, and by kind and name."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Which computes each request by itself, so that nothing depends on what comes together."""
    with hosted(tmp_path_factory.mktemp("state"), make_torch_engine, Settings(deterministic=True)) as host:
        yield host


def run(host: Host, folder: Path | None) -> subprocess.CompletedProcess[str]:
    """Run the program, with the SDK in a folder, or the one that is installed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TINKER_")}
    environment["TINKER_TELEMETRY"] = "0"  # which has an SDK wait before it raises
    if folder is not None:
        environment["PYTHONPATH"] = str(folder.absolute())
    return subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAM), host.url],
        capture_output=True,
        check=False,
        env=environment,
        text=True,
        timeout=SECONDS,
    )


def result(host: Host, folder: Path | None) -> tuple[Mapping[str, Any], Weights]:
    done = run(host, folder)
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout)
    session_id, store, owner = found.pop("session"), host.service.storage.store, host.service.keys.owner_of(KEY)
    row = store.session(session_id, owner)
    assert row is not None
    assert row.sdk_version == found["version"]
    rows, _ = store.checkpoints(owner)
    weights = {}
    for one in rows:
        session, _, run_id = one.model_id.partition(":")
        if session == session_id and one.name in ("state", "after"):
            assert one.sha256 is not None
            weights[run_id, f"{one.kind}/{one.name}"] = dict(one.sha256)
    return found, weights


@pytest.fixture(scope="module")
def expected(host: Host) -> tuple[Mapping[str, Any], Weights]:
    """Of the SDK that is installed."""
    return result(host, None)


@pytest.mark.parametrize("name", [name for name in SDKS if name != TOO_OLD])
def test_it_gets_what_the_newest_gets(host: Host, expected: tuple[Mapping[str, Any], Weights], name: str) -> None:
    """Would catch a form of the wire that is not read, or read as something else, at any call that the SDK has."""
    found, weights = result(host, FOLDER / name)
    assert name in (found["version"], "newest")
    files = found["later"].pop("archive", None)  # which is gone in 0.36
    assert files in (None, ["adapter_config.json", "adapter_model.safetensors"])
    assert found["later"].items() <= expected[0]["later"].items()
    assert {**found, "version": None, "later": None} == {**expected[0], "version": None, "later": None}
    assert len(weights) == 2
    assert weights == expected[1]


def is_told_so(done: subprocess.CompletedProcess[str]) -> bool:
    text = "Your Tinker SDK version is no longer supported. Please upgrade to the latest version."
    return done.returncode != 0 and "BadRequestError" in done.stderr and text in done.stderr


@pytest.mark.parametrize("name", NOT_HOSTED)
def test_one_that_the_hosted_service_refuses_is_refused_as_hosted(tmp_path: Path, name: str) -> None:
    """Would catch one that runs here and not there."""
    with hosted(tmp_path, FakeEngine, Settings(as_hosted=True)) as host:
        assert is_told_so(run(host, FOLDER / name))
        assert host.service.rules.counts["old_sdk"] > 0


@pytest.mark.skipif(TOO_OLD not in SDKS, reason="not installed: make test-sdks")
def test_one_that_is_too_old_is_told_so(host: Host) -> None:
    """Would catch one that is left waiting, or that fails later with words that say nothing."""
    assert is_told_so(run(host, FOLDER / TOO_OLD))
