"""An HTML page in one file: no script, nothing from the network, and every text in it escaped."""

from collections.abc import Iterable, Sequence
from html import escape

from cookhouse.printable import printable

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1f24; --dim: #5c6470; --rule: #dde1e7; --paper: #fff; --box: #f5f7f9;
  --accent: #1f62c4; --good: #1a7f37; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7eb; --dim: #9aa3af; --rule: #343a43; --paper: #15181c;
  --box: #1d2126; --accent: #79aefc; --good: #5cc877; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--paper); }
h1 { font-size: 1.5rem; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; padding-bottom: .2rem; border-bottom: 1px solid var(--rule); }
summary { cursor: pointer; font-weight: 600; margin: .8rem 0 .4rem; }
.dim, figcaption { color: var(--dim); font-size: .85rem; }
.gaps { border-left: 4px solid var(--bad); background: var(--box); padding: .5rem 1rem .5rem 2rem; margin: 1rem 0;
  overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .25rem 1rem .25rem 0; border-bottom: 1px solid var(--rule);
  white-space: pre-wrap; overflow-wrap: break-word; min-width: 4rem; max-width: 60rem; }
th { color: var(--dim); font-weight: 600; font-size: .85rem; }
td:last-child { overflow-wrap: anywhere; min-width: 4.5rem; }
@media (max-width: 40rem) { th, td { padding-right: .5rem; font-size: .85rem; min-width: 3rem; } }
.charts { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); }
figure { margin: 0; padding: .6rem; background: var(--box); border-radius: 6px; min-width: 0; }
figcaption b { color: var(--ink); display: block; overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--dim); font-size: 11px; }
.grid { stroke: var(--rule); }
.line, .guide { fill: none; stroke: var(--accent); stroke-width: 1.6; stroke-linejoin: round; }
.guide { stroke-dasharray: 3 3; stroke-width: 1; }
.dot { fill: var(--accent); }
.hover { fill: transparent; }
.hover:hover { fill: var(--accent); }
.answer { background: var(--box); border-radius: 6px; padding: .6rem .8rem; margin: 0 0 .6rem; display: grid;
  grid-template-columns: minmax(4.5rem, max-content) 1fr; gap: .2rem .8rem; }
.answer div { white-space: pre-wrap; overflow-wrap: anywhere; min-width: 0; max-height: 20rem; overflow-y: auto; }
.good { color: var(--good); }
.bad { color: var(--bad); }
a { color: var(--accent); }
"""


def text(value: object, max_characters: int = 10_000) -> str:
    """Anything as text that a page shows and never obeys, cut if it is long."""
    whole = str(value)
    shown = escape(printable(whole[:max_characters], keep="\n\t"))
    return shown + (f"… ({len(whole) - max_characters:,} more characters)" if len(whole) > max_characters else "")


def page(title: str, body: Iterable[str]) -> str:
    """A whole document; `title` is escaped here, `body` is HTML."""
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            # If anything slipped past the escaping, browsers would still neither run nor load it.
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<title>{text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
            f"<h1>{text(title)}</h1>",
            *body,
            "</body>\n</html>\n",
        ]
    )


def section(title: str, body: Iterable[str]) -> Iterable[str]:
    """A heading and HTML below it; nothing at all if there is nothing below it."""
    blocks = list(body)
    return [f"<section>\n<h2>{text(title)}</h2>", *blocks, "</section>"] if blocks else []


def collapsed(title: str, body: Iterable[str], *, is_open: bool = False) -> Iterable[str]:
    """HTML that a click on its title shows or hides."""
    return [f"<details{' open' if is_open else ''}>\n<summary>{text(title)}</summary>", *body, "</details>"]


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of texts."""
    head = "".join(f"<th>{text(name)}</th>" for name in header)
    body = "\n".join("<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'
