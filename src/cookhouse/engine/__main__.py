"""`python -m cookhouse.engine DESCRIPTOR`: a worker over torch, started by `transports.child`, whose socket it is."""

import gc
import logging
import os
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from cookhouse.engine.contract import WorkerOptions
from cookhouse.engine.engine import Engine
from cookhouse.engine.heap import keep_freed
from cookhouse.engine.instructions import narrow_torch
from cookhouse.engine.transports.child_process import Running, Tell, run_child
from cookhouse.engine.worker import Runner

_KERNELS = "cookhouse.engine.kernels.cpu.build"


def load() -> None:
    """Import torch and all that an engine needs, and set what is the process's alone.

    Raises:
        InputError: the environment narrows the processor to something unknown.
    """
    # OpenMP's threads spin for milliseconds while they wait, by default, and take the cores from the server next to us:
    # then a step can take ten times as long. Some microseconds keep nearly all speed. Read when torch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    keep_freed()
    narrow_torch(os.environ)
    logging.getLogger(_KERNELS).setLevel(logging.INFO)  # a first start takes many seconds longer, and says so
    # Nearly all that imports make stays: looking through it for garbage would take a sixth of their time.
    gc.disable()
    import cookhouse.engine.torch_engine  # noqa: F401

    gc.freeze()
    gc.enable()


def make_worker(options: WorkerOptions, engine_options: Mapping[str, Any], tell: Tell) -> Running:
    """A worker whose engine is made in the thread that runs it, from the options of `TorchEngine`."""
    return Runner(partial(_engine, options, engine_options), options, tell)


def _engine(options: WorkerOptions, engine_options: Mapping[str, Any]) -> Engine:
    from cookhouse.engine.device import choose_device
    from cookhouse.engine.share import Share, bind_cores, claim_cores
    from cookhouse.engine.torch_engine import TorchEngine

    share = Share(options.index, options.num_sharing, options.memory_bytes, options.gpu_part)
    share.take_cores()
    name = share.device(engine_options.get("device"))
    device = choose_device(name)
    # This thread is the engine's own. One that waits for a GPU needs no core to itself.
    may_bind = device.type == "cpu" and claim_cores()
    own = {
        "device": name,
        "share_bytes": share.most_bytes(device),
        "free_bytes": share.free_bytes(device),
        "samplers_only": engine_options.get("samplers_only", False) or not options.trains,
    }
    engine = TorchEngine(**{**engine_options, **own})
    if may_bind:
        bind_cores()
    return engine


if __name__ == "__main__":
    os._exit(run_child(int(sys.argv[1]), load, make_worker))
