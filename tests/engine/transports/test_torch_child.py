"""The child that computes with torch: `python -m cookhouse.engine`."""

import asyncio
from pathlib import Path

import pytest

from cookhouse.engine.contract import Event, Logged, Lost, Up
from cookhouse.engine.instructions import VARIABLE
from cookhouse.engine.transports.child import Child
from tests.engine.transports.calls import options

ENGINE_OPTIONS = {
    "base_models": ["cookhouse/tiny"],
    "device": None,
    "precision": None,
    "max_base_bytes": None,
    "max_cache_bytes": None,
    "samplers_only": False,
}


async def first_events(folder: Path) -> list[Event]:
    """What it tells until it is up, or lost."""
    child = Child()
    child.begin(options(folder), ENGINE_OPTIONS)
    events: list[Event] = []
    try:
        while not any(isinstance(event, Up | Lost) for event in events):
            events += await child.events()
        return events
    finally:
        await child.close(10)


def test_an_environment_that_it_cannot_use_is_told_as_the_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read before torch is loaded, and before options have come."""
    monkeypatch.setenv(VARIABLE, "mmx")
    lost = asyncio.run(first_events(tmp_path))[-1]
    assert isinstance(lost, Lost)
    assert lost.failure is not None
    assert lost.failure.blame == "user"
    assert lost.failure.message.startswith(f"{VARIABLE}=mmx: there is no such set of instructions")


@pytest.mark.slow
def test_what_the_builder_of_kernels_says_comes_before_it_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a first start, whose many seconds have to be explained while they pass."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    *records, up = asyncio.run(first_events(tmp_path))
    assert isinstance(up, Up)
    assert [info.name for info in up.base_models] == ["cookhouse/tiny"]
    assert up.description.startswith("cpu")
    texts = [record.message for record in records if isinstance(record, Logged)]
    assert any("building the kernels" in text or "no C++ compiler" in text for text in texts)
