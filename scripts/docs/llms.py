"""The pages for programs that read: `llms.txt`, a list of them, and `llms-full.txt`, all of them in one."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from scripts.docs.reference import filled_in

_INCLUDE = re.compile(r"^```\{literalinclude\} (?P<path>\S+)\n(?::[^\n]*\n)*```$", re.MULTILINE)


def write(app: Any, exception: Exception | None) -> None:
    """What Sphinx calls when it has built the pages."""
    if exception is not None or app.builder.format != "html":
        return
    pages = [*_in_order(app.env, app.config.root_doc)]
    head = f"# {app.config.project}\n\n> {_first_paragraph(app.env, pages[0])}\n"
    lines = [
        f"- [{app.env.titles[page].astext()}]({page}.html): {_first_paragraph(app.env, page)}" for page in pages[1:]
    ]
    out = Path(app.outdir)
    (out / "llms.txt").write_text(head + "\n## Pages\n\n" + "\n".join(lines) + "\n", encoding="utf-8")
    texts = [_source(Path(app.srcdir) / f"{page}.md") for page in pages]
    (out / "llms-full.txt").write_text("\n\n".join(texts), encoding="utf-8")


def _in_order(env: Any, page: str) -> Iterator[str]:
    """A page and those below it, as the tables of contents have them."""
    yield page
    for child in env.toctree_includes.get(page, ()):
        yield from _in_order(env, child)


def _first_paragraph(env: Any, page: str) -> str:
    paragraph = env.get_doctree(page).next_node(nodes.paragraph)
    return "" if paragraph is None else " ".join(paragraph.astext().split())


def _source(path: Path) -> str:
    """A page as one reads it without Sphinx: with its generated parts and the files that it includes."""

    def included(match: re.Match[str]) -> str:
        file = path.parent / match["path"]
        language = "python" if file.suffix == ".py" else "text"
        return f"```{language}\n{file.read_text(encoding='utf-8').rstrip()}\n```"

    return _INCLUDE.sub(included, filled_in(path.read_text(encoding="utf-8"))).strip() + "\n"
