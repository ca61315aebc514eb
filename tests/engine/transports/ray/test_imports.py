"""A server has Ray's workers without Ray, which it never imports."""

import subprocess
import sys


def test_what_a_server_imports_is_without_ray() -> None:
    """Would catch a server that needs the extra, or pays half a second for it, without having asked for Ray."""
    script = "import sys; import cookhouse.server.__main__; print('ray' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "False"


def test_what_an_actor_runs_is_without_ray() -> None:
    script = "import sys; import cookhouse.engine.transports.ray.actor; print('ray' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "False"
