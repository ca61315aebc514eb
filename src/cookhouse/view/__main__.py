"""`python -m cookhouse.view RUN_FOLDER`: the page of one run, until stdin ends. See `cookhouse.view.beside`."""

import os
import signal
import sys
import threading
from pathlib import Path

from cookhouse.errors import InputError

_NICENESS = 10
"""The run beside it comes first."""


def main() -> None:
    os.nice(_NICENESS)
    from cookhouse.pages import run_address
    from cookhouse.view.access import Access
    from cookhouse.view.place import place_of
    from cookhouse.view.serving import serve

    threading.Thread(target=_end_with_stdin, daemon=True).start()
    place, name = place_of(Path(sys.argv[1]))
    access = Access()

    def tell(url: str) -> None:
        print(url + access.with_token(run_address(name)), flush=True)  # noqa: T201 - the run beside it reads the line

    try:
        serve(place, access, 0, tell)
    except InputError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(0)


def _end_with_stdin() -> None:
    # os.read, since a thread inside a buffered read breaks the interpreter's shutdown.
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    main()
