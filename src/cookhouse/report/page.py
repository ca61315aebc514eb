"""HTML pages in one file each: nothing from the network, no script but our own, which the policy names by digest, and
every text in them escaped by the templates.
"""

import base64
import hashlib
from importlib.resources import files
from typing import Any, Final

from jinja2 import BaseLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cookhouse.errors import printable

_SCRIPT: Final = files("cookhouse.report").joinpath("templates/rollouts.js").read_text(encoding="utf-8")
"""Of the page of rollouts."""


def render(template: str, **values: Any) -> str:
    """A whole document. Values are text that a page shows and never obeys; `|cut` keeps what may be long short."""
    return _ENVIRONMENT.get_template(template).render(values)


def escaping_environment(loader: BaseLoader) -> Environment:
    """Templates in which every value is escaped, control characters are spelled out, and `|cut` shortens."""
    environment = Environment(
        loader=loader,
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["cut"] = _cut
    return environment


def _shown(value: object) -> object:
    """Value of every `{{ }}` before it is escaped, unless a template made it."""
    return value if hasattr(value, "__html__") else printable(str(value), keep="\n\t")


def _cut(value: object, max_characters: int = 10_000) -> str:
    """Anything as text, with what it lost told at its end."""
    whole = str(value)
    num_more = len(whole) - max_characters
    return whole if num_more <= 0 else f"{whole[:max_characters]}… ({num_more:,} more characters)"


_ENVIRONMENT = escaping_environment(PackageLoader("cookhouse.report"))
_ENVIRONMENT.globals["script"] = Markup(_SCRIPT)
_ENVIRONMENT.globals["script_digest"] = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
