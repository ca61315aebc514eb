"""What overlap of rollouts and training is worth: `rl_basic` in step, streamed in minibatches, and two steps ahead.

Modes differ in their settings alone. On the local engine both sides of the overlap share the cores, so little can be
gained. On a service that samples elsewhere, simulated here on a clock of its own, rollouts take 1 to 30 seconds with a
heavy tail (Pareto, exponent 1.2, seeded) and training six. A mode is timed from its start to its last answer.

    python -m bench.overlap
"""

import argparse
import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from bench.harness import parse_options, save_record

if TYPE_CHECKING:
    from cookhouse.training import Connect

MODES: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {"sync": {}, "stream": {"num_minibatches": 8}, "lag 2": {"max_steps_off_policy": 2}}
)
TRAIN_SECONDS = 6.0
NUM_SIMULATED_STEPS = 24
NUM_SIMULATED_GROUPS = 8


class Stopwatch:
    """A telemetry sink: from the start of a run to the last answer of an optimizer step."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._start: float | None = None
        self._end = 0.0
        self.num_steps = 0

    @property
    def seconds(self) -> float:
        """Seconds per step."""
        assert self._start is not None
        return (self._end - self._start) / self.num_steps

    def write(self, record: Any) -> None:
        """Take what the run reports."""
        from cookhouse.telemetry import Event, Span

        if self._start is None and isinstance(record, Event) and record.name == "run.start":
            self._start = self._now()
        if isinstance(record, Span) and record.name == "optim_step":
            self._end = self._now()
            self.num_steps += 1

    def close(self) -> None:
        """Nothing is held open."""


async def seconds_per_step(
    folder: Path, connect: "Connect", now: Callable[[], float], settings: Mapping[str, Any]
) -> float:
    """Run the recipe in a folder of its own."""
    from cookhouse.adapters import Adapters
    from cookhouse.recipes import run_async
    from cookhouse.recipes.rl_basic import Config

    watch = Stopwatch(now)
    fixed = {"num_eval": 0, "save_every": 0, "num_samples": 0, "log_path": tempfile.mkdtemp(dir=folder)}
    adapters = Adapters(service=connect, sinks=[watch])
    await run_async("rl_basic", Config(**{**fixed, **settings}), adapters=adapters)
    return watch.seconds


async def measure_embedded(folder: Path, device: str, num_steps: int, num_rounds: int) -> dict[str, float]:
    """Seconds per step by mode on one embedded server, medians over rounds in which the modes take turns."""
    from cookhouse.service.local import local_server
    from cookhouse.service.process import SERVER_COMMAND
    from cookhouse.training import connect_to

    rounds = []
    command = (*SERVER_COMMAND, "--device", device)
    async with local_server(folder / "service", base_models=["cookhouse/tiny"], command=command) as server:
        connect = connect_to(server.url, server.api_key)
        await seconds_per_step(folder, connect, time.perf_counter, {"max_steps": 1})
        for _ in range(num_rounds):
            rounds.append(
                {
                    mode: await seconds_per_step(
                        folder, connect, time.perf_counter, {"max_steps": num_steps, **settings}
                    )
                    for mode, settings in MODES.items()
                }
            )
    return {mode: median(one[mode] for one in rounds) for mode in MODES}


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs timers at once, in order: `time` says what a clock would have shown. Work of threads takes no time: those of
    executors, and those that open and close a session.
    """

    _now = 0.0
    _num_working = 0

    def time(self) -> float:
        """Seconds since the start."""
        return self._now

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """See `asyncio`. The clock stands still until it is done."""
        future: asyncio.Future[Any] = super().run_in_executor(executor, func, *args)
        self._num_working += 1
        future.add_done_callback(self._worked)
        return future

    def _worked(self, _: "asyncio.Future[Any]") -> None:
        self._num_working -= 1

    def _run_once(self) -> None:
        is_idle = not self._ready and not self._num_working  # type: ignore[attr-defined]
        if is_idle and self._scheduled and not _is_session_thread_alive():  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def _is_session_thread_alive() -> bool:
    return any(thread.name == "training service" for thread in threading.enumerate())


def measure_simulated(folder: Path) -> dict[str, float]:
    """Seconds per step by mode, on the clock of the simulation."""

    async def one(settings: Mapping[str, int]) -> float:
        from cookhouse.training import FakeService

        chance = np.random.default_rng(0)
        rollout_seconds = np.minimum(1.0 + chance.pareto(1.2, size=10_000), 30.0)
        num_pieces = settings.get("num_minibatches", 1)
        trained = [asyncio.Event() for _ in range(NUM_SIMULATED_STEPS * num_pieces)]

        async def gate(kind: str, number: int) -> None:
            if kind == "sample":
                await asyncio.sleep(float(rollout_seconds[number]))
            if kind == "forward_backward":
                await asyncio.sleep(TRAIN_SECONDS / num_pieces)
                trained[number].set()
            if kind == "snapshot" and number > 0:  # of the weights after so many steps: not there before them
                await trained[number * num_pieces - 1].wait()

        sizes = {"batch_size": NUM_SIMULATED_GROUPS, "group_size": 4, "max_steps": NUM_SIMULATED_STEPS}
        now = asyncio.get_running_loop().time
        return await seconds_per_step(folder, FakeService(gate=gate).connect, now, {**sizes, **settings})

    found = {}
    for mode, settings in MODES.items():
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            found[mode] = runner.run(one(settings))
    return found


def main() -> None:
    """Measure both services and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8, help="steps of each mode on the local engine, in each round")
    parser.add_argument("--rounds", type=int, default=2, help="times that the modes take turns there")
    options = parse_options(parser)
    os.environ["TINKER_TELEMETRY"] = "0"
    with tempfile.TemporaryDirectory() as folder:
        found = {
            "simulated": measure_simulated(Path(folder)),
            "embedded": asyncio.run(measure_embedded(Path(folder), options.device, options.steps, options.rounds)),
        }
    figures: dict[str, float] = {}
    for service, seconds in found.items():
        for mode in MODES:
            ratio = seconds["sync"] / seconds[mode]
            print(f"{service:9} {mode:7} {seconds[mode]:6.2f} s per step, {ratio:.2f} × sync")
            figures |= {f"{service} {mode}": seconds[mode], f"{service} {mode} ratio": ratio}
    if options.save:
        save_record("overlap", vars(options), figures)


if __name__ == "__main__":
    main()
