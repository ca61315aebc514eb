"""A release, up to what would be uploaded: `make release`.

Refuses a tree that is not committed, a version that the changelog has no section of, and one that is tagged elsewhere.
Then it builds the packages into dist/, checks them, and says what is missing and what would be done. Nothing leaves
this machine.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from scripts.release.contents import faults
from scripts.release.machinery import check_files
from scripts.release.project import ROOT, changes, repository
from scripts.release.wheels import build_packages

from cookhouse.version import __version__


def main() -> int:
    found = list(_refusals())
    if found:
        return _say("refused", found)
    check_files()
    packages = build_packages(ROOT / "dist")
    sources = [name.removeprefix("src/") for name in _git("ls-files", "src").splitlines()]
    found = [fault for package in packages for fault in faults(package, sources)]
    checker = Path(os.environ["RELEASE_TOOLS"]) / "twine"
    strict = subprocess.run([checker, "check", "--strict", *packages], check=False)
    if strict.returncode:
        found.append("`twine check` finds what is above")
    if found:
        return _say("refused", found)
    print(f"\ncookhouse {__version__} is built and checked. Nothing has been tagged or uploaded. It would be:")
    print(f"  git tag v{__version__} {_git('rev-parse', '--short', 'HEAD')}")
    for package in packages:
        digest = hashlib.sha256(package.read_bytes()).hexdigest()[:16]
        print(f"  upload {package.relative_to(ROOT)} ({package.stat().st_size / 1e6:.1f} MB, sha256 {digest}...)")
    if repository() is None:
        print("missing: the address of the repository, Repository in [project.urls] of pyproject.toml")
    return 0


def _refusals() -> list[str]:
    found = []
    if changed := _git("status", "--porcelain"):
        found.append(f"the tree has changes; commit them, or put them away:\n{changed}")
    if not changes(__version__):
        found.append(f"CHANGELOG.md has no section `## {__version__}` with text; write one, or set another version")
    tag = f"v{__version__}"
    if _git("tag", "--list", tag) and _git("rev-parse", f"{tag}^{{commit}}") != _git("rev-parse", "HEAD"):
        found.append(f"{tag} is the tag of another commit; set another version in src/cookhouse/version.py")
    return found


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.rstrip()


def _say(what: str, found: list[str]) -> int:
    for fault in found:
        print(f"{what}: {fault}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
