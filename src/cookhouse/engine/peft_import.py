"""Makes a PEFT folder a checkpoint in a process of its own, for a server, which loads no torch.

`python -m cookhouse.engine.peft_import FOLDER OUTPUT [BASE_MODEL]` writes it, or says on stderr why not.
"""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from cookhouse.engine.apart import answer, ask


def import_apart(folder: Path, output: Path, base_model: str | None = None) -> None:
    """As `export.import_peft`, which see; some seconds, of which the calling thread computes nothing.

    Raises:
        InputError: as there.
        ServiceError: it failed otherwise.
    """
    arguments = [str(folder), str(output)] if base_model is None else [str(folder), str(output), base_model]
    sys.stderr.write(ask(__name__, arguments, f"{folder} could not be imported"))


def main(arguments: Sequence[str]) -> int:
    from cookhouse.engine.export import import_peft

    folder, output, *base_models = arguments
    return answer(partial(import_peft, Path(folder), Path(output), base_model=next(iter(base_models), None)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
