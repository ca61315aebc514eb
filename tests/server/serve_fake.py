"""A server process over the fake engine: `python serve_fake.py STATE_DIR [--watch-stdin] [--busy]`, prints its URL."""

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


class BusyEngine(FakeEngine):
    """Takes a minute for each pass."""

    def forward_backward(self, requests: Sequence[ForwardBackward]) -> Sequence[ForwardBackwardOutput | InputError]:
        time.sleep(60)
        return super().forward_backward(requests)


def announce(url: str, engine: str) -> None:  # noqa: ARG001
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    run_server(
        host="127.0.0.1",
        port=0,
        api_keys=[KEY],
        state_dir=Path(sys.argv[1]),
        base_models=[],
        make_worker=partial(InThread, BusyEngine if "--busy" in sys.argv else FakeEngine),
        watch_stdin="--watch-stdin" in sys.argv,
        on_ready=announce,
    )
    exit_with(0)
