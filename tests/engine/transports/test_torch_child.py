"""The child that computes with torch: `python -m cookhouse.engine`."""

import asyncio
from pathlib import Path

import pytest

from cookhouse.engine.contract import Event, Lost, Up
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


async def first_event(folder: Path) -> Event:
    child = Child()
    child.begin(options(folder), ENGINE_OPTIONS)
    try:
        return (await child.events())[0]
    finally:
        await child.close(10)


def test_an_environment_that_it_cannot_use_is_told_as_the_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read before torch is loaded, and before options have come."""
    monkeypatch.setenv(VARIABLE, "mmx")
    lost = asyncio.run(first_event(tmp_path))
    assert isinstance(lost, Lost)
    assert lost.failure is not None
    assert lost.failure.blame == "user"
    assert lost.failure.message.startswith(f"{VARIABLE}=mmx: there is no such set of instructions")


@pytest.mark.slow
def test_what_the_builder_of_kernels_says_comes_before_it_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At a first start, whose many seconds have to be explained while they pass."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    caplog.set_level("INFO", "cookhouse.engine.kernels.cpu.build")
    up = asyncio.run(first_event(tmp_path))
    assert isinstance(up, Up)
    assert [info.name for info in up.base_models] == ["cookhouse/tiny"]
    assert up.description.startswith("cpu")
    assert any("building the kernels" in text or "no C++ compiler" in text for text in caplog.messages)
