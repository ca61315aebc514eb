"""A sink in a thread of its own: order, failures, and time that is bounded."""

import logging
import queue
import threading
from collections.abc import Callable

import pytest

from cookhouse.telemetry import Background, Event, Record, Telemetry
from cookhouse.telemetry.sinks import background


class _Keeping:
    def __init__(self) -> None:
        self.threads = {threading.get_ident()}
        self.names: list[str] = []
        self.is_closed = False

    def write(self, record: Record) -> None:
        assert isinstance(record, Event)
        if record.name == "break":
            raise OSError("no space")
        self.threads.add(threading.get_ident())
        self.names.append(record.name)

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.is_closed = True


@pytest.fixture
def kept() -> _Keeping:
    return _Keeping()


def _made(kept: _Keeping) -> Callable[[], _Keeping]:
    def make() -> _Keeping:
        kept.threads = {threading.get_ident()}
        return kept

    return make


def test_everything_happens_in_order_in_one_other_thread(kept: _Keeping) -> None:
    sink = Background("kept", _made(kept))
    names = [str(number) for number in range(500)]
    for name in names:
        sink.write(Event(name=name))
    sink.close()
    assert kept.names == names
    assert kept.is_closed
    assert len(kept.threads) == 1
    assert threading.get_ident() not in kept.threads


def test_what_a_sink_raised_is_raised_by_the_next_write(kept: _Keeping) -> None:
    # Catches a tool that has failed and is told of at the end of a run of days.
    sink = Background("kept", _made(kept))
    sink.write(Event(name="break"))
    sink._thread.join(60)
    with pytest.raises(OSError, match="no space"):
        sink.write(Event(name="c"))
    with pytest.raises(OSError, match="no space"):
        sink.close()
    assert kept.is_closed


@pytest.mark.parametrize("last", [[], ["c"]], ids=["at the end", "in the middle"])
def test_a_failure_is_said_once_and_what_came_before_is_kept(
    kept: _Keeping, caplog: pytest.LogCaptureFixture, last: list[str]
) -> None:
    heard = _Keeping()
    with Telemetry([heard, sink := Background("kept", _made(kept))]) as telemetry:
        for name in ["a", "b"]:
            telemetry.event(name)
        sink.write(Event(name="break"))
        sink._thread.join(60)
        for name in last:
            telemetry.event(name)
    assert kept.names == ["a", "b"]
    assert kept.is_closed
    assert [name for name in heard.names if name == "telemetry.failed"] == ["telemetry.failed"]
    assert sum(record.levelno >= logging.WARNING for record in caplog.records) == 1
    assert "telemetry sink kept failed" in caplog.text


def test_a_sink_that_hangs_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()

    class Hanging(_Keeping):
        def close(self) -> None:
            release.wait(60)

    heard = _Keeping()
    with Telemetry([heard, sink := Background("hanging", Hanging, close_seconds=0.05)]) as telemetry:
        telemetry.event("a")
    assert heard.names == ["a", "telemetry.failed"]
    assert "has not finished after 0.05 s" in caplog.text
    release.set()
    sink._thread.join(60)


def test_a_sink_that_starts_too_late_is_closed() -> None:
    release, closed = threading.Event(), threading.Event()

    class Late(_Keeping):
        def close(self) -> None:
            closed.set()

    def make() -> _Keeping:
        release.wait(60)
        return Late()

    with pytest.raises(TimeoutError, match=r"has not started after 0\.05 s"):
        Background("hanging", make, start_seconds=0.05)
    release.set()
    assert closed.wait(10.0)


def test_a_sink_that_is_far_behind_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches a queue that grows without bound, and a write that waits for its place in it.
    monkeypatch.setattr(background, "MAX_WAITING", 3)
    release = threading.Event()

    class Slow(_Keeping):
        def write(self, record: Record) -> None:
            release.wait(60)
            super().write(record)

    sink = Background("slow", Slow, close_seconds=0.05)
    for _ in range(3):
        sink.write(Event(name="a"))
    with pytest.raises(queue.Full):  # the thread may hold one more
        any(sink.write(Event(name="a")) for _ in range(2))  # type: ignore[func-returns-value]
    with pytest.raises(TimeoutError, match="has not finished"):
        sink.close()
    release.set()


def test_a_library_that_exits_ends_neither_the_process_nor_the_thread_unseen() -> None:
    def make() -> _Keeping:
        raise SystemExit(3)

    with pytest.raises(RuntimeError, match=r"it ended its thread: SystemExit\(3\)"):
        Background("exiting", make)
