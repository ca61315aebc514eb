"""A driver of workers over the small loop of `fake_child`: `python -m ... DESCRIPTOR`. Waits for no nodes."""

import contextlib
import os
import sys

from cookhouse.engine.transports.ray.driver import run_driver
from tests.engine.transports.engine_child import load
from tests.engine.transports.fake_child import Answering

if __name__ == "__main__":
    with contextlib.suppress(ModuleNotFoundError):
        from cookhouse.engine.transports.ray import cluster

        cluster._NODES_SECONDS = 0.0
    os._exit(run_driver(int(sys.argv[-1]), load, Answering))
