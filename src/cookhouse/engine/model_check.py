"""Says of base models what loading them would, as far as their configs tell, in a process of its own: for a dry run,
which loads no torch.

`python -m cookhouse.engine.model_check FOLDER ...` says on stderr what cannot be run.
"""

import sys
from collections.abc import Sequence

from cookhouse.engine.apart import answer, ask


def check_apart(folders: Sequence[str]) -> None:
    """As `BaseModel.check_config` of each, which see; some seconds, of which the calling thread computes nothing.

    Raises:
        InputError: as there.
        ServiceError: it failed otherwise.
    """
    ask(__name__, folders, f"the engine could not be asked about {', '.join(folders)}")


def main(arguments: Sequence[str]) -> int:
    from cookhouse.engine.model.base_model import BaseModel

    def check() -> None:
        for name in arguments:
            BaseModel.check_config(name)

    return answer(check)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
