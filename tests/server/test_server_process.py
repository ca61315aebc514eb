"""The server's own process: it orders, writes and encodes, and computes nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from cookhouse.server.__main__ import Stdout


def test_it_never_loads_what_computes(tmp_path: Path) -> None:
    """Would catch an import that brings models, kernels or an engine into the process that answers clients."""
    program = (
        "import sys, cookhouse.server.__main__, cookhouse.server.http.app, cookhouse.server.service\n"
        "names = [name for name in sys.modules if name.startswith('cookhouse.engine.')]\n"
        "print(*sorted({name.split('.')[2] for name in names}))\n"
        "print('transformers' in sys.modules)\n"
    )
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=120)
    rooms, has_transformers = done.stdout.splitlines()
    assert not set(rooms.split()) & {"model", "lora", "train", "sampler", "kernels", "worker", "torch_engine", "export"}
    assert has_transformers == "False"


@pytest.mark.parametrize(
    ("as_json", "at_once", "said"),
    [
        (True, False, ["the address", '{"note": "before"}', '{"warning": "too"}', '{"note": "after"}']),
        (True, True, ['{"note": "before"}', '{"warning": "too"}', "the address", '{"note": "after"}']),
        (False, False, ["before", "too", "the address", "after"]),
    ],
)
def test_the_address_is_the_first_line_of_json(
    capsys: pytest.CaptureFixture[str], as_json: bool, at_once: bool, said: list[str]
) -> None:
    """Would catch a program that reads the address from the first line, and finds that a kernel is being built."""
    stdout = Stdout(as_json=as_json, at_once=at_once)
    stdout.say("before")
    stdout.say("too", kind="warning")
    stdout.announce("the address")
    stdout.say("after")
    assert capsys.readouterr().out.splitlines() == said
