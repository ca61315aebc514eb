"""What the journal costs: runs with it and without, in turn; accepting a request; disk over many steps; a restart.

    python -m bench.journal
    python -m bench.journal --part runs --part disk

The disk's own sync time is measured between, in the same folder: 4 KiB appended to a file, and fdatasync.
"""

import argparse
import contextlib
import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from bench.harness import save_record

KEY = "tml-bench"
MODEL, RANK = "cookhouse/tiny", 32
NUM_SEQUENCES, NUM_TOKENS = 16, 128
"""Of a supervised step."""
NUM_PROMPTS, GROUP_SIZE, MAX_TOKENS = 16, 4, 32
"""Of a step of reinforcement learning."""
NUM_TENANTS, NUM_SMALL_TOKENS = 64, 16
NUM_DISK_STEPS, DISK_EVERY = 2000, 100
RESTART_STEPS = (10, 100, 500)
NUM_SYNCS = 10
"""Of the disk, before each round."""
PARTS = ("runs", "accept", "disk", "restart")
Figures = dict[str, float]
_NOT_YET = 408


@dataclass(frozen=True, kw_only=True)
class Started:
    url: str
    process: subprocess.Popen[str]
    state_dir: Path


@contextmanager
def serving(state_dir: Path, *arguments: str) -> Iterator[Started]:
    """A server over a folder that stays."""
    command = [sys.executable, "-m", "cookhouse.server", "--json", "--watch-stdin", "--state-dir", str(state_dir)]
    process = subprocess.Popen(
        [*command, "--precision", "float32", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"COOKHOUSE_API_KEYS": KEY},
    )
    try:
        assert process.stdout is not None
        yield Started(url=_url(process.stdout), process=process, state_dir=state_dir)
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.communicate("")


def _url(lines: Iterator[str]) -> str:
    """The address that it says once it answers, among notes."""
    return next(str(told["url"]) for line in lines if "url" in (told := json.loads(line)))


class Disk:
    """The disk's own sync of a small write."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / "sync").open("ab", buffering=0)
        self.taken: list[float] = []
        """Milliseconds of each."""

    def sync(self) -> None:
        began_at = time.perf_counter()
        self._file.write(bytes(4096))
        os.fdatasync(self._file.fileno())
        self.taken.append(1e3 * (time.perf_counter() - began_at))

    @property
    def milliseconds(self) -> float:
        return statistics.median(self.taken)


class Runs:
    """The loops that are timed, through the SDK."""

    def __init__(self, url: str, num_tenants: int) -> None:
        import tinker
        from tinker import types

        self._types = types
        self._trainers = [
            tinker.ServiceClient(base_url=url, api_key=KEY).create_lora_training_client(MODEL, rank=RANK).result()
            for _ in range(num_tenants)
        ]
        self._adam = types.AdamParams(learning_rate=1e-4)

    def supervised(self, num_steps: int) -> None:
        """Each step is sent before the one before it has been answered."""
        batch = [self._datum(NUM_TOKENS)] * NUM_SEQUENCES
        waiting: list[Any] = []
        for _ in range(num_steps):
            sent = [
                self._trainers[0].forward_backward(batch, "cross_entropy"),
                self._trainers[0].optim_step(self._adam),
            ]
            for each in waiting:
                each.result()
            waiting = sent
        for each in waiting:
            each.result()

    def rl(self, num_steps: int) -> None:
        """New weights, answers, and a step on these."""
        types = self._types
        params = types.SamplingParams(max_tokens=MAX_TOKENS, stop=[], seed=1)
        for _ in range(num_steps):
            sampler = self._trainers[0].save_weights_and_get_sampling_client().result()
            drawing = [
                sampler.sample(types.ModelInput.from_ints([5 + i, 6, 7, 8]), GROUP_SIZE, params)
                for i in range(NUM_PROMPTS)
            ]
            sequences = [sequence for each in drawing for sequence in each.result().sequences]
            data = [
                types.Datum(
                    model_input=types.ModelInput.from_ints(sequence.tokens),
                    loss_fn_inputs={
                        "target_tokens": types.TensorData.from_numpy(np.array(sequence.tokens)),
                        "logprobs": types.TensorData.from_numpy(np.array(sequence.logprobs, np.float32)),
                        "advantages": types.TensorData.from_numpy(np.ones(len(sequence.tokens), np.float32)),
                    },
                )
                for sequence in sequences
            ]
            passed = self._trainers[0].forward_backward(data, "importance_sampling")
            self._trainers[0].optim_step(self._adam).result()
            passed.result()

    def tenants(self, num_steps: int) -> None:
        """Small steps of all tenants at once."""
        batch = [self._datum(NUM_SMALL_TOKENS)]
        for _ in range(num_steps):
            sent: list[Any] = []
            for trainer in self._trainers:
                sent += [trainer.forward_backward(batch, "cross_entropy"), trainer.optim_step(self._adam)]
            for each in sent:
                each.result()

    def _datum(self, num_tokens: int) -> Any:
        tokens_T = np.arange(num_tokens) + 1
        return self._types.Datum(
            model_input=self._types.ModelInput.from_ints(tokens_T.tolist()),
            loss_fn_inputs={"target_tokens": self._types.TensorData.from_numpy(tokens_T + 1)},
        )


def in_turn(sides: Mapping[str, Callable[[], None]], rounds: int, disk: Disk) -> dict[str, list[float]]:
    """Seconds of each round of each side, with syncs between; the first round is not counted, who begins changes."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for index in range(rounds + 1):
        for _ in range(NUM_SYNCS):
            disk.sync()
        for name in sorted(sides, reverse=index % 2 == 0):
            began_at = time.perf_counter()
            sides[name]()
            taken[name].append(time.perf_counter() - began_at)
    return {name: each[1:] for name, each in taken.items()}


def measure_runs(folder: Path, rounds: int) -> Figures:
    """Time of a run with the journal, as a ratio to that without: the median of pairs, and their quartiles."""
    folder.mkdir()
    figures: Figures = {}
    disk = Disk(folder)
    with ExitStack() as stack:
        servers = {name: stack.enter_context(serving(folder / name, *words)) for name, words in _SIDES.items()}
        for kind, num_steps, num_tenants in (("supervised", 20, 1), ("rl", 8, 1), ("tenants", 3, NUM_TENANTS)):
            runs = {name: Runs(server.url, num_tenants) for name, server in servers.items()}
            calls = {name: partial(getattr(run, kind), num_steps) for name, run in runs.items()}
            taken = in_turn(calls, rounds, disk)
            ratios = [ours / theirs for ours, theirs in zip(taken["on"], taken["off"], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            added = 1e3 * (statistics.median(taken["on"]) - statistics.median(taken["off"])) / num_steps
            figures |= {f"{kind}_ratio": middle, f"{kind}_ratio_low": low, f"{kind}_ratio_high": high}
            figures[f"{kind}_added_milliseconds_a_step"] = added
            figures |= {
                f"{kind}_{name}_milliseconds_a_step": 1e3 * statistics.median(each) / num_steps
                for name, each in taken.items()
            }
            print(
                f"{kind:10} with the journal {middle:.3f} × the time ({low:.3f} to {high:.3f}), {added:+.2f} ms a step"
            )
    print(f"a sync of the disk between takes {disk.milliseconds:.2f} ms")
    return figures | {"runs_sync_milliseconds": disk.milliseconds}


_SIDES: Mapping[str, Sequence[str]] = {"on": (), "off": ("--journal", "off")}


class Plain:
    """A tenant without the SDK, so that a request's acceptance can be timed."""

    def __init__(self, url: str) -> None:
        headers = {"X-API-Key": KEY}
        self._http = httpx.Client(base_url=f"{url}/api/v1", headers=headers, timeout=120, trust_env=False)
        session = self._post("create_session", tags=[], user_metadata=None, sdk_version="0.38.0")["session_id"]
        created = self._post(
            "create_model", session_id=session, model_seq_id=0, base_model=MODEL, lora_config={"rank": RANK}
        )
        self._model_id = created["model_id"]
        self._seq_id = 0
        self.wait(created["request_id"])

    def step(self) -> str:
        """Have a step accepted."""
        self._seq_id += 1
        adam = {"learning_rate": 1e-4}
        return str(
            self._post("optim_step", model_id=self._model_id, seq_id=self._seq_id, adam_params=adam)["request_id"]
        )

    def train(self, num_steps: int) -> None:
        """Passes and steps, which are waited for."""
        from tinker.proto import tinker_public_pb2 as pb

        tokens_T = np.arange(NUM_TOKENS) + 1
        for _ in range(num_steps):
            self._seq_id += 1
            message = pb.ForwardBackwardRequest(model_id=self._model_id, seq_id=self._seq_id, loss_fn="cross_entropy")
            for _ in range(NUM_SEQUENCES):
                datum = message.data.add()
                datum.model_input.add().encoded_text.tokens = tokens_T.astype("<i4").tobytes()
                targets = pb.Tensor(dtype=pb.DTYPE_INT64, dense=(tokens_T + 1).astype("<i8").tobytes())
                datum.loss_fn_inputs["target_tokens"].CopyFrom(targets)
            self._http.post("/forward_backward", content=message.SerializeToString()).raise_for_status()
            self.wait(self.step())

    def wait(self, request_id: str) -> None:
        while self._http.post("/retrieve_future", json={"request_id": request_id}).status_code == _NOT_YET:
            pass

    def _post(self, route: str, **content: Any) -> Any:
        return self._http.post(f"/{route}", json=content).raise_for_status().json()


def measure_accepting(folder: Path, rounds: int) -> Figures:
    """Milliseconds from a small request to its acceptance, with nothing else under way."""
    folder.mkdir()
    with ExitStack() as stack:
        servers = {name: stack.enter_context(serving(folder / name, *words)) for name, words in _SIDES.items()}
        plain = {name: Plain(server.url) for name, server in servers.items()}
        taken: dict[str, list[float]] = {name: [] for name in plain}
        disk = Disk(folder)
        for _ in range(50 * rounds):
            disk.sync()
            for name, tenant in plain.items():
                began_at = time.perf_counter()
                request_id = tenant.step()
                taken[name].append(1e3 * (time.perf_counter() - began_at))
                tenant.wait(request_id)
    figures = {f"accept_{name}_milliseconds": statistics.median(each) for name, each in taken.items()}
    added = figures["accept_on_milliseconds"] - figures["accept_off_milliseconds"]
    print(
        f"accepting a step takes {figures['accept_on_milliseconds']:.2f} ms, of which the journal {added:.2f} ms; "
        f"a sync of the disk between takes {disk.milliseconds:.2f} ms"
    )
    return figures | {"accept_added_milliseconds": added, "accept_sync_milliseconds": disk.milliseconds}


def measure_disk(folder: Path) -> Figures:
    """Bytes of the state folder, over many steps."""
    with serving(folder / "disk") as server:
        runs = Runs(server.url, 1)
        used = []
        for _ in range(NUM_DISK_STEPS // DISK_EVERY):
            runs.supervised(DISK_EVERY)
            used.append(bytes_below(server.state_dir) / 2**20)
    print("MiB of the state folder, every 100 steps: " + " ".join(f"{each:.1f}" for each in used))
    half = len(used) // 2
    return {
        "disk_first_half_mib": max(used[:half]),
        "disk_second_half_mib": max(used[half:]),
        **{f"disk_{(index + 1) * DISK_EVERY}_steps_mib": each for index, each in enumerate(used)},
    }


def bytes_below(folder: Path) -> int:
    """What the files there take on the disk."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += 512 * path.lstat().st_blocks
    return total


def measure_restarts(folder: Path) -> Figures:
    """Seconds from the kill of a server, so many steps into a run, until its successor is ready."""
    figures: Figures = {}
    for num_steps in RESTART_STEPS:
        state_dir = folder / f"restart-{num_steps}"
        with serving(state_dir) as server:
            Plain(server.url).train(num_steps)
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
            num_entries = entries_in(state_dir)
        began_at = time.perf_counter()
        with serving(state_dir) as server:
            while httpx.get(f"{server.url}/readyz", timeout=60, trust_env=False).status_code != 200:
                time.sleep(0.01)
            seconds = time.perf_counter() - began_at
        print(f"after {num_steps} steps, {num_entries} requests in the journal: ready again after {seconds:.2f} s")
        figures |= {f"restart_{num_steps}_steps_seconds": seconds, f"restart_{num_steps}_steps_entries": num_entries}
    return figures


def entries_in(state_dir: Path) -> int:
    with closing(sqlite3.connect(state_dir / "server.db")) as database:
        return int(database.execute("SELECT count(*) FROM entries").fetchone()[0])


def main() -> None:
    """Print what the journal takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS, help="repeatable; default: all")
    parser.add_argument("--rounds", type=int, default=20, help="pairs of runs")
    parser.add_argument("--folder", help="where to keep state folders meanwhile; default: that of temporary files")
    parser.add_argument("--save", action="store_true", help="write its record under bench/results")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        figures: Figures = {"load": os.getloadavg()[0]}
        print(f"load {figures['load']:.1f}")
        parts: Mapping[str, Callable[[], Figures]] = {
            "runs": lambda: measure_runs(folder / "runs", options.rounds),
            "accept": lambda: measure_accepting(folder / "accept", options.rounds),
            "disk": lambda: measure_disk(folder),
            "restart": lambda: measure_restarts(folder),
        }
        for part in options.part or PARTS:
            figures |= parts[part]()
    if options.save:
        save_record("journal", vars(options), figures)


if __name__ == "__main__":
    main()
