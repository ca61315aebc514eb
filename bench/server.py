"""`python -m cookhouse.server` that on stopping writes to a file the most memory that it has held at once.

python -m bench.server FILE DEVICE --state-dir FOLDER ...
"""

import sys
from pathlib import Path

from bench.harness import peak_bytes

from cookhouse.server.__main__ import exit_with, main

if __name__ == "__main__":
    peak_file, device, *arguments = sys.argv[1:]
    code = main(["--device", device, *arguments])
    Path(peak_file).write_text(str(peak_bytes(device)), encoding="ascii")
    exit_with(code)
