"""What is kept of steps beside training."""

import threading
from typing import Any

import pytest

from cookhouse.algorithms.base.example_log import Keeper
from cookhouse.errors import InputError

pytestmark = pytest.mark.anyio


async def test_steps_are_kept_in_their_order_in_another_thread() -> None:
    kept: list[tuple[int, bool]] = []
    keeper = Keeper([lambda step, _: kept.append((step, threading.current_thread() is threading.main_thread()))])
    for step in range(5):
        keeper(step, [])
    await keeper.aclose()
    assert kept == [(step, False) for step in range(5)]


async def test_a_slow_disk_holds_up_nobody_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Catches a loop that waits for examples, and steps that are left out in silence."""
    is_free = threading.Event()
    kept: list[int] = []

    def keep(step: int, parts: Any) -> None:
        del parts
        is_free.wait(60)
        kept.append(step)

    keeper = Keeper([keep])
    for step in range(40):
        keeper(step, [])
    is_free.set()
    await keeper.aclose()
    assert kept == list(range(len(kept)))
    assert 0 < len(kept) < 40
    assert f"{40 - len(kept)} steps have no examples" in caplog.text


@pytest.mark.parametrize(
    ("error", "has_traceback"), [(InputError("no space left"), False), (ValueError("odd shape"), True)]
)
async def test_what_goes_wrong_is_said_once_and_the_run_goes_on(
    error: Exception, has_traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Catches a run that ends because nothing can be shown of it."""

    def keep(step: int, parts: Any) -> None:
        del step, parts
        raise error

    keeper = Keeper([keep])
    keeper(0, [])
    keeper(1, [])
    await keeper.aclose()
    assert caplog.text.count(f"no further examples are kept of this run: {error}") == 1
    assert ("Traceback" in caplog.text) == has_traceback
