"""A whole server over HTTP whose engines, processes of their own as usual, compute nothing: they sleep.

python -m bench.simulated_server STATE_DIR [COSTS [POOL]] prints its URL, and ends with its stdin; see `Watch` for what
it measures of itself. POOL is as `plans_of` takes it: {"workers": 4}. With several cores the server has the first one
to itself; its workers share the others.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.busy import Busy
from bench.watch import Watch

from cookhouse.engine.contract import WorkerOptions
from cookhouse.engine.simulated import Costs, SimulatedEngine
from cookhouse.engine.transports.child import Child
from cookhouse.engine.transports.child_process import Running, Tell, run_child
from cookhouse.engine.worker import Runner

_AS_CHILD = "--child"
FIGURES = "watched.json"
"""In the state folder: what the server measured of itself."""


def _start_child(costs: Mapping[str, float], cores: Sequence[int], options: WorkerOptions) -> Child:
    child = Child((sys.executable, "-m", "bench.simulated_server", _AS_CHILD))
    child.begin(options, {"costs": costs, "cores": cores})
    return child


def _make_worker(options: WorkerOptions, engine: Mapping[str, Any], tell: Tell) -> Running:
    os.sched_setaffinity(0, engine["cores"])
    costs = Costs(**engine["costs"])
    busy = Busy(options.folder.parent / options.worker)
    return Runner(lambda: SimulatedEngine(costs=costs, spend=busy.sleep), options, tell)


def _serve(state_dir: Path, costs: Mapping[str, float], pool: Mapping[str, int], keys: str) -> int:
    from cookhouse.server.main import run_server
    from cookhouse.server.pool.plans import FOLDER, plans_of
    from cookhouse.server.settings import ServiceOptions

    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])

    def begin(url: str, _engine: str) -> None:
        Watch(state_dir / FIGURES, state_dir / FOLDER).listen()
        print(url, flush=True)

    run_server(
        ServiceOptions(
            api_keys=keys.split(","),
            state_dir=state_dir,
        ),
        address=("127.0.0.1", 0),
        make_worker=partial(_start_child, costs, cores[1:] or cores),
        plans=plans_of(**pool),
        watch_stdin=True,
        on_ready=begin,
    )
    return 0


if __name__ == "__main__":
    if sys.argv[1] == _AS_CHILD:
        os._exit(run_child(int(sys.argv[2]), lambda: None, _make_worker))
    state_dir, *options = sys.argv[1:]
    costs, pool = [*(json.loads(option) for option in options), {}, {}][:2]
    os._exit(_serve(Path(state_dir), costs, pool, os.environ["COOKHOUSE_API_KEYS"]))
