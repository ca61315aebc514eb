"""Makes a PEFT folder a checkpoint in a process of its own, for a server, which loads no torch.

`python -m cookhouse.engine.peft_import FOLDER OUTPUT` writes it, or says on stderr why not.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cookhouse.errors import CookhouseError, InputError, ServiceError

_REFUSED = 2


def import_apart(folder: Path, output: Path) -> None:
    """As `export.import_peft`, which see; some seconds, of which the calling thread computes nothing.

    Raises:
        InputError: as there.
        ServiceError: it failed otherwise.
    """
    command = [sys.executable, "-m", __name__, str(folder), str(output)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode == 0:
        sys.stderr.write(done.stderr)
        return
    reason = done.stderr.strip().rpartition("\n")[2]
    if done.returncode == _REFUSED:
        raise InputError(reason)
    raise ServiceError(f"{folder} could not be imported: {reason or f'exit code {done.returncode}'}")


def main(arguments: Sequence[str]) -> int:
    from cookhouse.engine.export import import_peft

    folder, output = map(Path, arguments)
    try:
        import_peft(folder, output)
    except (CookhouseError, OSError) as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return _REFUSED if isinstance(error, InputError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
