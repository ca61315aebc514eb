"""Says of base models what loading them would, as far as their configs tell, in a process of its own: for a dry run,
which loads no torch.

`python -m cookhouse.engine.model_check FOLDER ...` says on stderr what cannot be run.
"""

import sys
from collections.abc import Sequence

from cookhouse.errors import CookhouseError, InputError

REFUSED = 2


def main(arguments: Sequence[str]) -> int:
    from cookhouse.engine.model.base_model import BaseModel

    try:
        for name in arguments:
            BaseModel.check_config(name)
    except CookhouseError as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return REFUSED if isinstance(error, InputError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
