"""One of several server processes over the fake engine: prints its URL, and what it says.

python serve_shared.py STATE_DIR SHARED_FOLDER DATABASE PORT [--slow] [--checkpoints=URL]
"""

import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, OTHER_KEY

from cookhouse.engine.contract import ForwardBackward, ForwardBackwardOutput
from cookhouse.engine.transports.thread import InThread
from cookhouse.errors import InputError
from cookhouse.server.__main__ import exit_with
from cookhouse.server.leases.sharing import Sharing
from cookhouse.server.main import run_server
from cookhouse.server.settings import ServiceOptions, Settings

_SLOW_SECONDS = 0.05


class SlowEngine(FakeEngine):
    def forward_backward(self, requests: Sequence[ForwardBackward]) -> Sequence[ForwardBackwardOutput | InputError]:
        time.sleep(_SLOW_SECONDS)
        return super().forward_backward(requests)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    state_dir, shared, database, port = sys.argv[1:5]
    urls = [word.partition("=")[2] for word in sys.argv[5:] if word.startswith("--checkpoints=")]
    run_server(
        ServiceOptions(
            api_keys=[KEY, OTHER_KEY],
            state_dir=Path(state_dir),
            settings=Settings(state_seconds=0.5, sweep_seconds=2.0, checkpoints=next(iter(urls), None)),
        ),
        address=("127.0.0.1", int(port)),
        database=database,
        sharing=Sharing(folder=Path(shared), url=f"http://127.0.0.1:{port}"),
        make_worker=partial(InThread, SlowEngine if "--slow" in sys.argv else FakeEngine),
        on_ready=lambda url, _: say(url),
        say=say,
    )
    exit_with(0)
