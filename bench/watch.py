"""What a server measures of itself: the processor time of its event loop by part, how late it is, busy workers."""

import asyncio
import json
import os
import signal
import statistics
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from bench.busy import busy_seconds

_SAMPLE_SECONDS = 0.004
"""Of processor time, from one look at what runs to the next."""
_LAG_SECONDS = 0.04
_LIBRARIES = ("uvicorn", "h11", "starlette", "fastapi", "pydantic", "pydantic_core", "sqlalchemy", "tinker", "asyncio")
_WAITING = "waiting"


class Watch:
    """Begins at SIGUSR1, and at SIGUSR2 writes what it found to a file. Lives on the event loop, in the main thread."""

    def __init__(self, file: Path, folder: Path) -> None:
        """`folder` is where the workers write how busy they are: see `Busy`."""
        self._file = file
        self._folder = folder
        self._samples: Counter[str] = Counter()
        self._lags: list[float] = []
        self._began_at = 0.0
        self._cpu: tuple[float, float] = (0.0, 0.0)
        self._busy: Mapping[str, float] = {}
        self._lagging: asyncio.Task[None] | None = None

    def listen(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, self._begin)
        loop.add_signal_handler(signal.SIGUSR2, self._end)
        signal.signal(signal.SIGPROF, self._look)
        # Looks come faster than a loop that is late reads of them; it needs none of them.
        signal.set_wakeup_fd(signal.set_wakeup_fd(-1), warn_on_full_buffer=False)

    def _begin(self) -> None:
        self._samples.clear()
        self._lags.clear()
        self._busy = busy_seconds(self._folder)
        self._began_at, self._cpu = time.monotonic(), _cpu_seconds()
        self._lagging = asyncio.ensure_future(self._measure_lag())
        signal.setitimer(signal.ITIMER_PROF, _SAMPLE_SECONDS, _SAMPLE_SECONDS)

    def _end(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        assert self._lagging is not None
        self._lagging.cancel()
        seconds = time.monotonic() - self._began_at
        busy = busy_seconds(self._folder)
        main, other = (now - before for now, before in zip(_cpu_seconds(), self._cpu, strict=True))
        del self._samples[_WAITING]
        total = self._samples.total() or 1
        figures = {
            "seconds": seconds,
            "loop_cpu": main / seconds,
            "threads_cpu": other / seconds,
            "parts": {name: main / seconds * number / total for name, number in self._samples.most_common()},
            "lag_median_milliseconds": 1e3 * statistics.median(self._lags),
            "lag_p99_milliseconds": 1e3 * statistics.quantiles(self._lags, n=100)[-1],
            "busy": {name: (busy[name] - self._busy.get(name, 0.0)) / seconds for name in busy},
        }
        whole = self._file.with_suffix(".part")
        whole.write_text(json.dumps(figures), encoding="ascii")
        whole.rename(self._file)

    def _look(self, _number: int, frame: FrameType | None) -> None:
        self._samples[_part(frame)] += 1

    async def _measure_lag(self) -> None:
        while True:
            began_at = time.monotonic()
            await asyncio.sleep(_LAG_SECONDS)
            self._lags.append(time.monotonic() - began_at - _LAG_SECONDS)


def _cpu_seconds() -> tuple[float, float]:
    """Processor time of this thread, and of all others of the process."""
    times = os.times()
    main = time.thread_time()
    return main, times.user + times.system - main


def _part(frame: FrameType | None) -> str:
    """The part of the server, or the library, that a frame works for: its own, or the nearest caller's."""
    if frame is not None and frame.f_code.co_name == "select":
        return _WAITING
    while frame is not None:
        words = str(frame.f_globals.get("__name__", "")).split(".")
        if words[0] == "cookhouse":
            return ".".join(words[1:3])
        if words[0] in _LIBRARIES:
            return words[0]
        frame = frame.f_back
    return "other"
