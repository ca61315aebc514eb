"""No test holds the suite for ever, and no thread or fixture that a test leaves behind.

pytest-timeout fails a test that takes too long and prints the stacks of all threads; the rest goes on. It raises in the
main thread, and its clock stops at the first failure. So the process ends, with the stacks, where that does not help:
what is raised is caught, or waits for a thread; a fixture of a failed test does not end; a thread keeps the process
alive after the last test. xdist starts another process for the rest.
"""

import faulthandler
import os
from collections.abc import Generator

import pytest

_FACTORS = {"hosted": 9, "long": 3, "slow": 3}  # by marker
_GRACE_FACTOR = 1.2
_STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_STDERR] = os.dup(2)  # while a test runs, 2 is where its output is kept


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of some markers a longer limit."""
    for item in items:
        if (factor := _factor(item)) > 1:
            item.add_marker(pytest.mark.timeout(factor * _limit_seconds(item.config)))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _end_process_later(item.config, _GRACE_FACTOR * _factor(item))
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    _end_process_later(item.config, _GRACE_FACTOR * _factor(item))  # pytest stops this clock, too, at a failure
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    is_worker = hasattr(item.config, "workerinput")
    if report.failed and is_worker and item.config.getoption("--device", "cpu") == "cuda" and _is_gpu_lost():
        # All tests after it in this process would fail, too: xdist starts another for the rest.
        text = f"{report.nodeid} ({call.when}) lost the GPU's context:\n{report.longreprtext}\n"
        os.write(item.config.stash[_STDERR], text.encode())
        os._exit(1)
    return report


def _is_gpu_lost() -> bool:
    """After some errors, an access beyond memory say, a process gets nothing but them from CUDA."""
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a worker of xdist waits for the others, and is ended by it
        _end_process_later(config, 1)


def _end_process_later(config: pytest.Config, factor: float) -> None:
    if seconds := factor * _limit_seconds(config):
        faulthandler.dump_traceback_later(seconds, exit=True, file=config.stash[_STDERR])


def _factor(item: pytest.Item) -> float:
    return next((factor for name, factor in _FACTORS.items() if item.get_closest_marker(name)), 1)


def _limit_seconds(config: pytest.Config) -> float:
    return float(config.getini("timeout"))
