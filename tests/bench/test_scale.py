"""Catches benches of several workers that measure nothing: no step within their window, work that sleep made longer."""

import argparse
from functools import partial
from pathlib import Path

import pytest
from bench.busy import Busy, busy_seconds
from bench.harness import isolated
from bench.recorded import record

from bench import scale, sizing
from cookhouse.server.pool.plans import plans_of


def test_a_sleep_that_takes_longer_is_no_more_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Busy(tmp_path / "worker0")
    monkeypatch.setattr("bench.busy.time.sleep", lambda _seconds: None)
    for _ in range(3):
        busy.sleep(0.25)
    assert busy_seconds(tmp_path) == {"worker0": 0.75}


def test_simulated_workers_do_what_tenants_ask_of_them() -> None:
    """Two supervised tenants with half a second a step, on a worker each."""
    found = sizing.simulate("supervised", 2, plans_of(workers=2), rounds=6.0)
    assert found["busy"] == pytest.approx(2.0)
    assert found["steps_per_second"] == pytest.approx(4.0, abs=0.7)  # a burst more or less in the window


@pytest.mark.slow
def test_a_window_has_steps_of_each_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over HTTP: a server, two workers that sleep, and clients that send what was recorded."""
    monkeypatch.setattr(scale, "_SHORTEST_SECONDS", 2.0)
    options = argparse.Namespace(loop="rl", tenants=2, group_size=8, rounds=3.0)
    recording = partial(
        record,
        num_sequences=scale.NUM_SEQUENCES,
        num_tokens=scale.NUM_TOKENS,
        prompt_tokens=scale.PROMPT_TOKENS,
        group_size=options.group_size,
        max_tokens=scale.MAX_TOKENS,
    )
    found = scale.measure({"workers": 2}, options, isolated(recording))
    assert set(found["busy"]) == {"worker0", "worker1"}
    assert min(found["busy"].values()) > 0
    assert found["steps_per_second"] > 0
    assert found["clients_processor_seconds"] > 0
