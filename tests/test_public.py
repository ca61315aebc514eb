"""What `import cookhouse` offers, and that it loads nothing until it is asked."""

import asyncio
import subprocess
import sys

import pytest

import cookhouse


def test_every_public_name_is_there() -> None:
    # Catches a name that moved, which would only be missed by whoever asks for it.
    for name in cookhouse.__all__:
        assert getattr(cookhouse, name) is not None
    assert sorted(cookhouse.__all__) == sorted(set(cookhouse.__all__))
    with pytest.raises(AttributeError, match="has no attribute 'rum'"):
        cookhouse.rum  # noqa: B018


def test_importing_it_loads_nothing_heavy() -> None:
    heavy = "('tinker', 'torch', 'transformers', 'fastapi', 'rich', 'ray', 'yaml', 'chz')"
    code = f"import sys, cookhouse; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_run_works_where_an_event_loop_runs_already(tmp_path_factory: pytest.TempPathFactory) -> None:
    """As in a cell of a notebook: `asyncio.run` would be refused there."""
    from cookhouse.training import FakeService

    folder = tmp_path_factory.mktemp("cell")
    (folder / "rows.jsonl").write_text('{"prompt": "say 1", "completion": "1"}\n' * 4)

    async def cell() -> int:
        config = {"dataset_path": str(folder / "rows.jsonl"), "batch_size": 2, "log_path": str(folder / "run")}
        adapters = cookhouse.Adapters(service=FakeService().connect, sinks=[])
        result = cookhouse.run("supervised", config, adapters=adapters)
        return result.summary.num_steps

    assert asyncio.run(cell()) == 2


def test_an_error_in_a_cell_is_the_runs_own() -> None:
    async def cell() -> None:
        cookhouse.run("supervised", {"dataset_path": "missing.jsonl"}, adapters=cookhouse.Adapters(sinks=[]))

    with pytest.raises(cookhouse.InputError, match=r"missing\.jsonl does not exist"):
        asyncio.run(cell())
