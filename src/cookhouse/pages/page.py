"""Documents from templates: of a page that is served, whose style and scripts are files beside it; and of one that is a
file, which has both inside, named to the browser by digest, and asks for nothing.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cookhouse.errors import printable

STATIC: Final = Path(__file__).parent / "static"
"""Styles, scripts and the mark: all that a served page asks for."""
TYPES: Final[Mapping[str, str]] = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
"""Media types of these, by the ends of their names."""


def document(template: str, *, scripts: Sequence[str] = (), **values: Any) -> str:
    """A page in one file, from its template. Values are text that it shows and never obeys; `|cut` keeps what may be
    long short. `scripts` are those of `static/` that it has inside.
    """
    inside = _joined(tuple(scripts))
    digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode() if inside else ""
    own = {"base": None, "style": Markup(_read("style.css")), "script": Markup(inside), "script_digest": digest}
    return _ENVIRONMENT.get_template(template).render({**own, **values})


def environment(**more: Any) -> Environment:
    """Templates in which every value is escaped, control characters are spelled out, and `|cut` shortens. `more` are
    values that all of them have, as `base`: where the files of `STATIC` are served.
    """
    made = Environment(
        loader=PackageLoader("cookhouse.pages"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"cut": _cut, "run_address": run_address, "urlencode": _quoted, "zip": zip}
    made.globals |= {"mark": Markup(_read("mark.svg")), **more}
    return made


def run_address(name: str, rest: str = "") -> str:
    """Address of a run's live page, or of one below it."""
    return f"/runs/{quote(name)}/-/{rest}"


def _quoted(text: object) -> str:
    return quote(str(text), errors="replace")


def _shown(value: object) -> object:
    """Value of every `{{ }}` before it is escaped, unless a template made it."""
    return value if hasattr(value, "__html__") else printable(str(value), keep="\n\t")


def _cut(value: object, max_characters: int = 10_000) -> str:
    """Anything as text, with what it lost told at its end."""
    whole = str(value)
    num_more = len(whole) - max_characters
    return whole if num_more <= 0 else f"{whole[:max_characters]}… ({num_more:,} more characters)"


@cache
def _read(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


@cache
def _joined(names: tuple[str, ...]) -> str:
    """Modules as one: what they import from each other stands above."""
    return "".join(re.sub(r"(?m)^import .*;\n", "", _read(f"{name}.js")) for name in names)


_ENVIRONMENT = environment()
