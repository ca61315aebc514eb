"""Seconds until weights of the server's disk are on another node of Ray's, for one worker there and for several.

    python -m bench.ray_publish

Both nodes are on this machine, so that no network is in it: what is measured is reading, Ray's object store, the way
from one to the other, and writing. Copies are counted by what was made in the object store of the other node.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.harness import save_record

from cookhouse.engine.contract import Account, Done, Fetch, LoraSpec, Up, Worker, WorkerOptions
from cookhouse.engine.transports.ray.workers import RayWorkers

MEGABYTES = 369
"""An adapter of rank 32 of an 8 B model in fp32, as weights for samplers."""
_DRIVER = (sys.executable, "-m", "bench.ray_arrivals")
_STORE_BYTES = 2**31
_CPUS = 2


async def answered(worker: Worker, kind: type) -> Any:
    """The next event of a kind."""
    while True:
        for event in await worker.events():
            if isinstance(event, kind):
                return event


async def fetch_seconds(workers: list[Worker], url: str, snapshot_id: str, num_bytes: int) -> float:
    """From the command to the last worker's answer."""
    began = time.perf_counter()
    for worker in workers:
        fetch = Fetch(
            command_id=snapshot_id,
            account=Account("", ""),
            snapshot_id=snapshot_id,
            base_model="",
            lora=LoraSpec(),
            url=url,
        )
        worker.submit([fetch])
    answers = await asyncio.gather(*(answered(worker, Done) for worker in workers))
    assert all(done.output == {"bytes": float(num_bytes)} for done in answers)
    return time.perf_counter() - began


async def measure(address: str, copied: Any, num_workers: int, megabytes: int, folder: Path) -> dict[str, float]:
    """Seconds and copies for one worker, and for all at once."""
    num_bytes = megabytes * 10**6
    urls = []
    for name in "ab":
        weights = folder / name
        weights.mkdir()
        (weights / "adapter.safetensors").write_bytes(os.urandom(num_bytes))
        urls.append(weights.as_uri())
    with RayWorkers(address, num_cpus=_CPUS, command=_DRIVER) as make:
        workers = [
            make(
                WorkerOptions(
                    worker=f"w{index}",
                    folder=folder / str(index),
                    max_snapshot_bytes=0,
                    max_snapshot_file_bytes=0,
                    max_pass_tokens=0,
                )
            )
            for index in range(num_workers)
        ]
        await asyncio.gather(*(answered(worker, Up) for worker in workers))
        figures: dict[str, float] = {}
        for name, some, url in (("one_worker", workers[:1], urls[0]), ("all_workers", workers, urls[1])):
            before = copied()
            figures[f"{name}_seconds"] = await fetch_seconds(list(some), url, name, num_bytes)
            figures[f"{name}_copies"] = (copied() - before) / num_bytes
        for worker in workers:
            await worker.close(10)
    return figures


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=MEGABYTES)
    parser.add_argument("--workers", type=int, default=3, help="on the other node")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    options = parser.parse_args()
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    from ray._private.internal_api import node_stats
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": _STORE_BYTES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        other = cluster.add_node(num_cpus=_CPUS * options.workers, object_store_memory=_STORE_BYTES)

        def copied() -> int:
            stats = node_stats(other.node_ip_address, other.node_manager_port, include_memory_info=False)
            return int(stats.store_stats.cumulative_created_bytes)

        with tempfile.TemporaryDirectory() as folder:
            work = measure(cluster.address, copied, options.workers, options.megabytes, Path(folder))
            figures = asyncio.run(work)
    finally:
        cluster.shutdown()
    for name, value in figures.items():
        print(f"{name:20} {value:8.2f}")
    if options.save:
        save_record("ray-publish", vars(options), figures)


if __name__ == "__main__":
    main()
