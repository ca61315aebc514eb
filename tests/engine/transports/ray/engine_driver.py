"""A driver of workers over engines of the tests, named by module and class: `python -m ... DESCRIPTOR`."""

import os
import sys

from cookhouse.engine.transports.ray.driver import run_driver
from tests.engine.transports.engine_child import load, make

if __name__ == "__main__":
    os._exit(run_driver(int(sys.argv[-1]), load, make))
