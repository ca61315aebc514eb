"""`python -m cookhouse.server` that on stopping writes to a file the most memory that it has held at once.

python -m bench.server FILE --state-dir FOLDER ...
"""

import sys
from pathlib import Path

from bench.harness import peak_bytes

from cookhouse.server.__main__ import exit_with, main

if __name__ == "__main__":
    code = main(sys.argv[2:])
    Path(sys.argv[1]).write_text(str(peak_bytes()), encoding="ascii")
    exit_with(code)
