"""Run published clients of the endpoint against our server: `python -m scripts.endpoint_clients [--write]`.

Each environment below build/endpoint_clients has clients that go together. A server of the embedded model runs
for each; docs/reference/endpoint-clients.md has the table of what came of every call.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from cookhouse.assets import TINY_MODEL

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "endpoint-clients.md"
_FOLDER = ROOT / "build" / "endpoint_clients"
_HEAD = "| client | call | result |\n|---|---|---|\n"
ENVIRONMENTS = {
    "openai-2": [
        "openai==2.54.0",
        "instructor==1.17.0",
        "langchain-openai==1.7.4",
        "litellm==1.110.2",
    ],
    "openai-3": [
        "openai==3.54.0",
        "anthropic==2.14.0",
        "openai-agents==0.24.0",
    ],
}
"""The packages of each environment."""
_ALONE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
"""Settings that keep clients from calling any other server."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.endpoint_clients", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table of the page anew")
    options = parser.parse_args(arguments)
    rows = [row for name, packages in ENVIRONMENTS.items() for row in _called(name, packages)]
    table = _HEAD + "".join(f"| {' | '.join(row)} |\n" for row in sorted(rows))
    if options.write:
        PAGE.write_text(PAGE.read_text(encoding="utf-8").partition(_HEAD)[0] + table, encoding="utf-8")
    print(table)
    failed = sum(row[2] == "fails" for row in rows)
    print(f"{len(rows)} calls, of which {failed} fail")
    return 1 if failed or not rows else 0


def _called(name: str, packages: Sequence[str]) -> list[list[str]]:
    """Each call of an environment's clients: client and version, call, result."""
    folder = _FOLDER / name
    _install(folder, packages)
    with tempfile.TemporaryDirectory() as work:
        calls = Path(work) / "calls"
        calls.touch()
        serve = [str(Path(sys.executable).with_name("cookhouse")), "serve", "-m", TINY_MODEL]
        pytest = [str(folder / "bin" / "python"), "-m", "pytest", "-q", "--confcutdir", "tests/endpoint_clients"]
        pytest += ["-p", "no:cacheprovider", "-W", "default", "tests/endpoint_clients"]
        done = subprocess.run(
            [*serve, "--state-dir", str(Path(work) / "state"), "--", *pytest],
            cwd=ROOT,
            env={**os.environ, "COOKHOUSE_CALLS": str(calls), **_ALONE},
            check=False,
        )
        rows = [json.loads(line) for line in calls.read_text().splitlines()]
    if done.returncode and all(row[2] != "fails" for row in rows):
        raise SystemExit(f"{name}: pytest ended with {done.returncode}, and no call of it failed")
    return rows


def _install(folder: Path, packages: Sequence[str]) -> None:
    done = folder / "installed"
    wanted = "\n".join(packages)
    if done.exists() and done.read_text() == wanted:
        return
    venv.create(folder, clear=True, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--disable-pip-version-check", *packages, "pytest", "pytest-timeout"], check=True)
    done.write_text(wanted)


if __name__ == "__main__":
    sys.exit(main())
