"""A server process over the fake engine: prints its URL, and what it says.

python serve_fake.py STATE_DIR [--watch-stdin] [--end-sessions] [--busy] [--slow]
"""

import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY

from cookhouse.engine.contract import ForwardBackward, ForwardBackwardOutput
from cookhouse.engine.transports.thread import InThread
from cookhouse.errors import InputError
from cookhouse.server.__main__ import exit_with
from cookhouse.server.main import run_server
from cookhouse.server.settings import ServiceOptions


class BusyEngine(FakeEngine):
    """Takes a minute for each pass, or as long as is said."""

    def __init__(self, seconds: float = 60) -> None:
        super().__init__()
        self._seconds = seconds

    def forward_backward(self, requests: Sequence[ForwardBackward]) -> Sequence[ForwardBackwardOutput | InputError]:
        time.sleep(self._seconds)
        return super().forward_backward(requests)


def engine() -> FakeEngine:
    if "--busy" in sys.argv:
        return BusyEngine()
    return BusyEngine(2.0) if "--slow" in sys.argv else FakeEngine()


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    run_server(
        ServiceOptions(
            api_keys=[KEY],
            state_dir=Path(sys.argv[1]),
            end_sessions=["eof"] if "--end-sessions" in sys.argv else [],
        ),
        address=("127.0.0.1", 0),
        make_worker=partial(InThread, engine),
        watch_stdin="--watch-stdin" in sys.argv,
        on_ready=lambda url, _: say(url),
        say=say,
    )
    exit_with(0)
