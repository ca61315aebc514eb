"""What is missing here, from the folder of wheels into one of our own: no index, no network, nothing else touched."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_SECONDS = 90
_PRESENT = """
import importlib.metadata, json, sys
print(json.dumps([each.name for each in importlib.metadata.distributions() if each.name]))
"""


def install(wheels: Path, site: Path, python: str, environment: Mapping[str, str]) -> str:
    """Returns what went in, in words. A folder that holds the same wheels already is kept.

    Raises:
        RuntimeError: pip failed, or took too long.
    """
    listing = json.dumps(sorted((each.name, each.stat().st_size) for each in wheels.glob("*.whl")))
    marker = site / ".installed"
    if marker.exists() and marker.read_text(encoding="utf-8") == listing:
        return f"as before, in {site}"
    shutil.rmtree(site, ignore_errors=True)
    chosen = missing(wheels, python, environment)
    if chosen:
        arguments = ("install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir")
        command = [python, "-m", "pip", "--disable-pip-version-check", *arguments, "--target", str(site)]
        _run([*command, *map(str, chosen)], environment)
    site.mkdir(parents=True, exist_ok=True)
    marker.write_text(listing, encoding="utf-8")
    return f"{len(chosen)} wheels: " + ", ".join("-".join(each.name.split("-")[:2]) for each in chosen)


def missing(wheels: Path, python: str, environment: Mapping[str, str]) -> Sequence[Path]:
    """The wheels of what that Python lacks, in any version; ours always."""
    present = {_normal(name) for name in json.loads(_run([python, "-c", _PRESENT], environment))}
    files = sorted(wheels.glob("*.whl"))
    return [each for each in files if (name := _normal(each.name.split("-")[0])) == "cookhouse" or name not in present]


def commit(wheels: Path) -> str:
    """That the folder was made from."""
    file = wheels / "contents.json"
    return str(json.loads(file.read_text(encoding="utf-8"))["commit"]) if file.exists() else "unknown"


def _normal(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def _run(command: Sequence[str], environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"{command[0]}: {error}") from error
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:4])} failed: {done.stderr.strip()[-500:]}")
    return done.stdout
