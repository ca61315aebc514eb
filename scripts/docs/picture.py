"""The picture of a first run on the landing page: what the terminal of `cookhouse run supervised` really shows.

python -m scripts.docs.picture           # a minute; writes docs/_static/first-run.svg
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).parents[2] / "docs" / "_static" / "first-run.svg"
COLUMNS = 92
COMMAND = ("run", "supervised", "log_path=runs/first")
LAST_LINE = "run folder"

# As rich's own format, but for fonts from another host: the pages work offline.
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main() -> None:
    environment = {**os.environ, "COLUMNS": str(COLUMNS)}
    with tempfile.TemporaryDirectory() as folder:
        run = [sys.executable, "-m", "cookhouse", *COMMAND]
        done = subprocess.run(run, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    said = done.stdout.splitlines()
    end = next(number for number, line in enumerate(said) if LAST_LINE in line)
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True, highlight=False)
        console.print(Text(f"$ cookhouse {' '.join(COMMAND)}", style="bold"))
        console.print(Text("\n".join(said[: end + 2])))
        PICTURE.write_text(console.export_svg(title="cookhouse", code_format=SVG, unique_id="run"), encoding="utf-8")


if __name__ == "__main__":
    main()
