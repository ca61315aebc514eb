"""`python -m cookhouse.engine.on_ray DESCRIPTOR`: drives workers over torch on Ray, for `transports.ray.workers`."""

import os
import sys

from cookhouse.engine.__main__ import load, make_worker
from cookhouse.engine.transports.ray.driver import run_driver

if __name__ == "__main__":
    os._exit(run_driver(int(sys.argv[1]), load, make_worker))
