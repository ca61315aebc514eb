"""How much `pip install --dry-run --report FILE` would download, counted.

python -m scripts.download_size FILE [--at-most MEGABYTES] lists its files, the largest first, and the sum.
It ends with an error where that is more.
"""

import argparse
import json
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

_TIMEOUT_SECONDS = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("--at-most", type=float, help="megabytes, of a million bytes")
    arguments = parser.parse_args()
    installed = json.loads(arguments.report.read_text())["install"]
    sizes = {each["metadata"]["name"]: num_bytes(each["download_info"]["url"]) / 1e6 for each in installed}
    for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
        print(f"{size:8.2f} MB  {name}")
    total = sum(sizes.values())
    print(f"{total:8.2f} MB  in {len(sizes)} files")
    if arguments.at_most is not None and total > arguments.at_most:
        print(f"error: that is more than {arguments.at_most:g} MB", file=sys.stderr)
        return 1
    return 0


def num_bytes(url: str) -> int:
    """Of a file, or of what an index answers with."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Path(unquote(parts.path)).stat().st_size
    with urlopen(Request(url, method="HEAD"), timeout=_TIMEOUT_SECONDS) as answer:
        return int(answer.headers["Content-Length"])


if __name__ == "__main__":
    sys.exit(main())
