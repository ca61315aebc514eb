"""Work that needs torch in a process of its own, for those that do not load it: `ask` runs a module of this package,
whose `main` ends in `answer`.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence

from cookhouse.errors import CookhouseError, InputError, ServiceError

_REFUSED = 2


def ask(module: str, arguments: Sequence[str], failure: str) -> str:
    """Run a module, and return its stderr. It takes some seconds, of which the calling thread computes nothing.

    Raises:
        InputError: as the module's work.
        ServiceError: it failed otherwise, which `failure` names.
    """
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode == 0:
        return done.stderr
    reason = done.stderr.strip().rpartition("\n")[2]
    if done.returncode == _REFUSED:
        raise InputError(reason)
    raise ServiceError(f"{failure}: {reason or f'exit code {done.returncode}'}")


def answer(work: Callable[[], object]) -> int:
    """Do it; the exit code. What is refused stands in the last line of stderr."""
    try:
        work()
    except (CookhouseError, OSError) as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return _REFUSED if isinstance(error, InputError) else 1
    return 0
