"""The example of a loop of one's own: stopped and begun again, it has the losses of one that was not."""

import importlib.util
from pathlib import Path

import pytest
from tests.server.hosting import KEY, Host

SCRIPT = Path(__file__).parents[2] / "examples" / "own_loop.py"


def test_a_loop_goes_on_where_it_was_stopped(host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Would catch a checkpoint without the optimizer's state, and one that is not the last."""
    monkeypatch.setenv("TINKER_BASE_URL", host.url)
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    spec = importlib.util.spec_from_file_location("own_loop", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "SAVE_EVERY", 2)
    whole = module.main(str(tmp_path / "whole"), 6)
    stopped = module.main(str(tmp_path / "parts"), 3)  # of which the third was not saved
    assert stopped == whole[:3]
    assert module.main(str(tmp_path / "parts"), 6) == whole
    assert len(set(whole)) == 6
