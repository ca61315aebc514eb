"""A whole server over the fake engine, which starts in a second: python -m tests.kills.fake_server --port 8000 ..."""

import argparse
import json
import os
from functools import partial
from pathlib import Path

from cookhouse.engine.transports.thread import InThread
from cookhouse.server.__main__ import exit_with
from cookhouse.server.main import run_server
from cookhouse.server.settings import ServiceOptions, Settings
from cookhouse.server.startup.command_line import KEYS_VARIABLE
from tests.server.fake_engine import FakeEngine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--settings", type=json.loads, default={})
    options = parser.parse_args()
    run_server(
        ServiceOptions(
            api_keys=os.environ[KEYS_VARIABLE].split(","),
            state_dir=options.state_dir,
            settings=Settings(**options.settings),
        ),
        address=("127.0.0.1", options.port),
        make_worker=partial(InThread, FakeEngine),
        on_ready=lambda _url, _engine: None,
    )


if __name__ == "__main__":
    main()
    exit_with(0)
