"""The server's own process: it orders, writes and encodes, and computes nothing."""

import subprocess
import sys
from pathlib import Path


def test_it_never_loads_what_computes(tmp_path: Path) -> None:
    """Would catch an import that brings models, kernels or an engine into the process that answers clients."""
    program = (
        "import sys, cookhouse.server.__main__, cookhouse.server.app, cookhouse.server.service\n"
        "names = [name for name in sys.modules if name.startswith('cookhouse.engine.')]\n"
        "print(*sorted({name.split('.')[2] for name in names}))\n"
        "print('transformers' in sys.modules)\n"
    )
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=120)
    rooms, has_transformers = done.stdout.splitlines()
    assert not set(rooms.split()) & {"model", "lora", "train", "sampler", "kernels", "worker", "torch_engine", "export"}
    assert has_transformers == "False"
