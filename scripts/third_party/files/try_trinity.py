"""Two steps of Trinity-RFT on a Ray cluster of its own: `try_trinity.py CONFIG`. It imports nothing of ours."""

import os
import signal
import subprocess
import sys
import tempfile
import time

_PORT = "6399"
_HEAD = (
    "ray",
    "start",
    "--head",
    "--block",
    "--node-ip-address",
    "127.0.0.1",
    "--port",
    _PORT,
    "--num-cpus",
    "8",
    "--include-dashboard",
    "false",
)
_SECONDS = 120
_END_SECONDS = 60


def main(config: str) -> int:
    """Exit code of Trinity-RFT, which asks for a cluster that runs already."""
    environment = {**os.environ, "RAY_ADDRESS": f"127.0.0.1:{_PORT}"}
    patient = {**os.environ, "RAY_raylet_start_wait_time_s": str(_SECONDS)}
    with tempfile.TemporaryDirectory() as folder:
        head = subprocess.Popen([*_HEAD, "--temp-dir", folder], env=patient)
        try:
            ends_at = time.monotonic() + _SECONDS
            while subprocess.run(["ray", "status"], capture_output=True, check=False, env=environment).returncode:
                if time.monotonic() > ends_at:
                    return 1
                time.sleep(1)
            return subprocess.run(["trinity", "run", "--config", config], check=False, env=environment).returncode
        finally:
            head.send_signal(signal.SIGTERM)
            head.wait(_END_SECONDS)


sys.exit(main(sys.argv[1]))
