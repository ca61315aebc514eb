"""Choice of a tokenizer's chat template, and the date that is passed to it."""

import json
import re
from collections.abc import Mapping

from cookhouse.chat.dates import CURRENT_DATE
from cookhouse.chat.encoding import Tokenizer
from cookhouse.errors import InputError

TOOL_USE = "tool_use"
"""What `transformers` calls the template for conversations that declare tools, where there are several."""
_DEFAULT = "default"

# `transformers` gives templates this function, and takes no other in its place.
_NOW = re.compile(r"""\bstrftime_now\(\s*(['"])(.*?)\1\s*\)""")


def template_source(tokenizer: Tokenizer, *, declares_tools: bool = False) -> str:
    """The template that `transformers` takes: of several named ones `default`, or `tool_use` where tools are declared.
    It has the text of a fixed day where it asks for the present one.

    Raises:
        InputError: the tokenizer has no chat template, or several and none of these.
    """
    found: object = getattr(tokenizer, "chat_template", None) or ""
    if isinstance(found, Mapping):
        found = _named(tokenizer, found, declares_tools=declares_tools)
    if not found:
        raise InputError(
            f"{tokenizer.name_or_path} has no chat template, so that it is a base model; use role_colon, or the "
            "renderer of the family that it is to speak as"
        )
    return _NOW.sub(lambda match: json.dumps(CURRENT_DATE.strftime(match[2])), str(found))


def has_tool_template(tokenizer: Tokenizer) -> bool:
    """True if conversations that declare tools have a template of their own."""
    found: object = getattr(tokenizer, "chat_template", None)
    return isinstance(found, Mapping) and TOOL_USE in found and _DEFAULT in found


def _named(tokenizer: Tokenizer, templates: Mapping[str, str], *, declares_tools: bool) -> str:
    name = TOOL_USE if declares_tools and TOOL_USE in templates else _DEFAULT
    if templates and name not in templates:
        raise InputError(
            f"{tokenizer.name_or_path} has the chat templates {', '.join(sorted(map(repr, templates)))} and none named "
            f"{_DEFAULT!r}; name one of them so in its tokenizer_config.json, or name a renderer"
        )
    return templates.get(name, "")
