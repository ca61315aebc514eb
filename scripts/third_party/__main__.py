"""Run other people's clients, as published, against our server: `python -m scripts.third_party [NAME ...]`.

Each gets an environment of its own below build/third_party: the client without what it requires, over our torch and
transformers, and of what else it imports the newest that fits. A server of the embedded model runs for each, and no hub
is asked. docs/reference/clients.md has what ran, and why others do not.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from scripts.third_party.clients import CLIENTS, Client

from cookhouse.assets import TINY_MODEL, resolve_model

ROOT = Path(__file__).parents[2]
_ENVIRONMENTS = ROOT / "build" / "third_party"
_SECONDS = 1800
_TIMED_OUT = 124
"""The exit code of `timeout`."""
_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "WANDB_MODE": "disabled",
    "DO_NOT_TRACK": "1",
    "AXOLOTL_DO_NOT_TRACK": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "TINKER_TELEMETRY": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Environment in which a client asks our server alone."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.third_party", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(one.name for one in CLIENTS)}")
    parser.add_argument("--as-hosted", action="store_true", help="serve as strictly as the hosted service")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - {one.name for one in CLIENTS}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    chosen = [one for one in CLIENTS if not options.names or one.name in options.names]
    failed = [one.name for one in chosen if not _try(one, ["--as-hosted"] if options.as_hosted else [])]
    print(f"failed: {', '.join(failed)}" if failed else "each of them ran")
    return 1 if failed else 0


def _try(client: Client, serving: Sequence[str]) -> bool:
    """Run each of a client's commands; True if all of them end well."""
    folder = _ENVIRONMENTS / client.name
    _install(client, folder)
    ran = True
    for command in client.commands:
        with tempfile.TemporaryDirectory() as work:
            began_at = time.monotonic()
            code = _run(command, folder, Path(work), serving)
            print(f"{client.name}: {command[0]}: exit code {code}, {time.monotonic() - began_at:.0f} s", flush=True)
            ran &= code == 0
    return ran


def _install(client: Client, folder: Path) -> None:
    done = folder / "installed"
    wanted = "\n".join((*client.alone, *client.imports))
    if done.exists() and done.read_text() == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=False, symlinks=True)
    own = next(folder.glob("lib/python*/site-packages"))
    (own / "zz_ours.pth").write_text(sysconfig.get_path("purelib") + "\n")  # behind its own packages
    (folder / "constraints.txt").write_text(f"torch=={version('torch')}\n")
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    pip.append("--disable-pip-version-check")
    subprocess.run([*pip, "--no-deps", *client.alone], check=True)
    if client.imports:
        subprocess.run([*pip, "--constraint", str(folder / "constraints.txt"), *client.imports], check=True)
    done.write_text(wanted)


def _run(command: Sequence[str], folder: Path, work: Path, serving: Sequence[str]) -> int:
    """Exit code of a command beside a server of its own."""
    shutil.copytree(Path(__file__).with_name("files"), work, dirs_exist_ok=True)
    model = str(resolve_model(TINY_MODEL))
    for config in work.glob("*.yaml"):
        config.write_text(config.read_text().replace("MODEL", model).replace("WORK", str(work)))
    words = [word.replace("MODEL", model).replace("WORK", str(work)) for word in command]
    cookhouse = [str(Path(sys.executable).with_name("cookhouse")), "serve", "--state-dir", str(work / "state")]
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **_QUIET, "PATH": path, "PYTHONPATH": str(work)}
    environment.pop("VIRTUAL_ENV", None)
    running = subprocess.Popen(
        [*cookhouse, *serving, "-m", model, "--", str(folder / "bin" / words[0]), *words[1:]],
        cwd=work,
        env=environment,
        start_new_session=True,
    )
    try:
        return running.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGTERM)  # what the command has started, too
        running.wait()
        return _TIMED_OUT


if __name__ == "__main__":
    sys.exit(main())
