"""Runs, for each extra that is missing, the command that an error prints, and sees that it installs what was missing.

To be run by the Python of an environment that may be changed, with cookhouse installed: python scripts/try_extras.py
"""

import shlex
import subprocess
import sys

from cookhouse.extras import extras, install_command

_MISSING = """
import sys
from cookhouse.extras import extras
print(*next(extra.missing for extra in extras() if extra.name == sys.argv[1]))
"""


def main() -> int:
    failed = []
    for extra in extras():
        if not extra.missing:
            continue
        command = install_command(extra.name)
        print(command, flush=True)
        done = subprocess.run([*shlex.split(command), "--quiet"], check=False)
        words = [sys.executable, "-c", _MISSING, extra.name]
        left = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
        if done.returncode or left:
            failed.append(f"{extra.name}: still missing {left or 'nothing'}, exit code {done.returncode}")
    print("\n".join(["failed:", *failed] if failed else ["each command installs its extra"]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
