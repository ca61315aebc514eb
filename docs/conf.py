"""How Sphinx builds the pages; `make docs`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.docs import llms, reference
from scripts.release.project import repository
from sphinx.application import Sphinx

from cookhouse.version import __version__

project = "cookhouse"
author = "the authors of cookhouse"
version = release = __version__
copyright = "Apache-2.0"  # noqa: A001  Sphinx's name

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 3
default_role = "code"  # a docstring's single backticks

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
# Types in signatures are links where the page on Python has them; not every one is there.
nitpick_ignore_regex = [(r"py:.*", r".*")]

html_theme = "furo"
pygments_dark_style = "github-dark"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_title = "cookhouse"
# Links from each page to its source, once the address is known.
if (_address := repository()) is not None:
    html_theme_options = {
        "source_repository": _address,
        "source_branch": "main",
        "source_directory": "docs/",
    }
html_copy_source = True
html_show_sphinx = False
html_show_copyright = False


def _keep_colons(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Napoleon takes what stands before a colon in an attribute's first line for its type."""
    del app, name, obj, options
    if what in ("attribute", "data", "property"):
        lines.insert(0, "")


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-docstring", _keep_colons, priority=400)
    app.connect("source-read", reference.fill_in)
    app.connect("build-finished", llms.write)
