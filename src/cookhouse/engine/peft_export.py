"""Writes the adapter of a checkpoint as a PEFT folder in a process of its own, for a server, which loads no torch.

`python -m cookhouse.engine.peft_export FOLDER OUTPUT NAME` writes it, with this name of the base model, or says on
stderr why not.
"""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from cookhouse.engine.apart import answer, ask


def export_apart(folder: Path, output: Path, base_name: str) -> None:
    """As `export.export_peft`, which see; some seconds, of which the calling thread computes nothing.

    Raises:
        InputError: as there.
        ServiceError: it failed otherwise.
    """
    sys.stderr.write(ask(__name__, [str(folder), str(output), base_name], f"{folder} could not be exported"))


def main(arguments: Sequence[str]) -> int:
    from cookhouse.engine.export import export_peft

    folder, output, base_name = arguments
    return answer(partial(export_peft, Path(folder), Path(output), base_name=base_name))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
