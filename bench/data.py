"""Seconds to the first step of a supervised run on a large JSON Lines file, and its peak memory: from the beginning,
resumed in the middle, and on a thousand rows of the same.

Each run is a process of its own, over a service that answers at once, with the embedded tokenizer; the clock starts
when everything is imported and the run is asked for, and stops when the first batch is submitted. The peer reads and
tokenizes the file as a whole first, as every run does below the limit.

    python -m bench.data                                    # a million rows
    python -m bench.data --rows 100000 --whole              # with the peer; slow on many rows
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from bench.harness import isolated, parse_options, peak_bytes, save_record

_BATCH_SIZE = 32  # of the embedded model


@dataclass(frozen=True, kw_only=True)
class Start:
    """Seconds until the first batch was submitted, peak resident bytes, and of these what was there before."""

    seconds: float
    peak: int
    before: int


def write_rows(path: Path, num_rows: int) -> None:
    """Conversations of one to four turns, some 500 bytes each."""
    chance = random.Random(0)
    words = [f"word{n}" for n in range(1000)]
    with path.open("w", encoding="utf-8") as file:
        for number in range(num_rows):
            turns = [
                {"role": role, "content": f"{number} " + " ".join(chance.choices(words, k=chance.randrange(5, 40)))}
                for _ in range(chance.choice((1, 1, 2)))
                for role in ("user", "assistant")
            ]
            file.write(json.dumps({"messages": turns}) + "\n")


def start(path: str, folder: str, resumes: bool, whole: bool) -> Start:
    """One run, interrupted once its first batch has been submitted."""
    from cookhouse.adapters import Adapters
    from cookhouse.data.batches import stream
    from cookhouse.models.tokenizers import get_tokenizer
    from cookhouse.recipes import run_async
    from cookhouse.training import FakeService, Interrupt
    from cookhouse.training.clients.fake import FakeState, FakeTrainingClient
    from cookhouse.weights.checkpoints import CheckpointFile

    get_tokenizer("cookhouse/tiny")
    import_module("cookhouse.workflows")  # what is timed begins after it

    if whole:
        stream.MAX_WHOLE_BYTES = 2**62
    # The weights do not matter, only the place: the fake service keeps none from one process to the next.
    saved = CheckpointFile(Path(folder) / "checkpoints.jsonl").read() if resumes else []
    states = {point.state_path: FakeState(theta=np.zeros(512)) for point in saved if point.state_path}
    started: list[float] = []
    interrupt = Interrupt()
    forward_backward = FakeTrainingClient.forward_backward

    def watched(client: FakeTrainingClient, *arguments: Any) -> Any:
        started.append(time.perf_counter())
        interrupt.request()
        return forward_backward(client, *arguments)

    FakeTrainingClient.forward_backward = watched  # type: ignore[assignment, method-assign]
    config = {
        "dataset_path": path,
        "log_path": folder,
        "behavior_if_log_dir_exists": "resume" if resumes else "delete",
        "num_eval": 0,
    }
    adapters = Adapters(service=FakeService(states=states).connect, sinks=[])
    before, begun = peak_bytes("cpu"), time.perf_counter()
    asyncio.run(run_async("supervised", config, adapters=adapters, interrupt=interrupt))
    return Start(seconds=started[0] - begun, peak=peak_bytes("cpu"), before=before)


def move_to_the_middle(folder: Path, num_rows: int) -> None:
    """Let the last checkpoint of a run be of the middle of its epoch."""
    path = folder / "checkpoints.jsonl"
    last = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
    middle = num_rows // _BATCH_SIZE // 2
    path.write_text(json.dumps({**last, "batch": middle, "step": middle, "epoch": 0}) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument(
        "--whole", action="store_true", help="measure the peer too: all rows read before the first step"
    )
    options = parse_options(parser)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as root:
        few, many, run = Path(root) / "few.jsonl", Path(root) / "many.jsonl", Path(root) / "run"
        write_rows(few, 1000)
        write_rows(many, options.rows)
        print(f"{options.rows:,} rows, {many.stat().st_size / 1e6:,.0f} MB")
        for name, path, resumes, whole in (
            ("1,000 rows", few, False, False),
            ("from the beginning", many, False, False),
            ("from the middle", many, True, False),
            *([("read as a whole", many, False, True)] if options.whole else []),
        ):
            if resumes:
                move_to_the_middle(run, options.rows)
            measured = isolated(start, str(path), str(run), resumes, whole)
            figures[f"{name}: seconds"] = measured.seconds
            figures[f"{name}: peak bytes"] = measured.peak
            print(
                f"{name:<20} {measured.seconds:6.2f} s to the first step, peak {measured.peak / 2**20:,.0f} MiB, "
                f"{(measured.peak - measured.before) / 2**20:,.0f} above the imports"
            )
    if options.save:
        save_record("data", vars(options), figures)


if __name__ == "__main__":
    main()
