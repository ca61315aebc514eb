"""A whole server over HTTP whose engine, a process of its own as usual, computes nothing: it sleeps.

python -m bench.simulated_server STATE_DIR [COSTS] prints its URL, and ends with its stdin
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from cookhouse.engine.contract import WorkerOptions
from cookhouse.engine.simulated import Costs, SimulatedEngine
from cookhouse.engine.transports.child import Child
from cookhouse.engine.transports.child_process import Running, Tell, run_child
from cookhouse.engine.worker import Runner

_AS_CHILD = "--child"


def _start_child(costs: Costs, options: WorkerOptions) -> Child:
    child = Child((sys.executable, "-m", "bench.simulated_server", _AS_CHILD))
    child.begin(options, asdict(costs))
    return child


def _make_worker(options: WorkerOptions, costs: Mapping[str, Any], tell: Tell) -> Running:
    return Runner(lambda: SimulatedEngine(costs=Costs(**costs)), options, tell)


def _serve(state_dir: Path, costs: Costs, keys: str) -> int:
    from cookhouse.server.main import run_server

    run_server(
        host="127.0.0.1",
        port=0,
        api_keys=keys.split(","),
        state_dir=state_dir,
        base_models=[],
        make_worker=partial(_start_child, costs),
        watch_stdin=True,
        on_ready=lambda url, _engine: print(url, flush=True),
    )
    return 0


if __name__ == "__main__":
    if sys.argv[1] == _AS_CHILD:
        os._exit(run_child(int(sys.argv[2]), lambda: None, _make_worker))
    state_dir, *costs = sys.argv[1:]
    os._exit(
        _serve(Path(state_dir), Costs(**json.loads(costs[0])) if costs else Costs(), os.environ["COOKHOUSE_API_KEYS"])
    )
