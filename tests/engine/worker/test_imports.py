"""A worker's own part is had without torch: only the engine that it makes brings it."""

import subprocess
import sys


def test_a_worker_is_imported_without_torch() -> None:
    """Would catch a server, or the parent of a worker's process, that pays a second and 200 MB for torch."""
    script = (
        "import sys; import cookhouse.engine.worker, cookhouse.engine.transports.thread; print('torch' in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "False"
