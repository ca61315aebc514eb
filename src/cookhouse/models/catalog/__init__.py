"""The model table: of which family a model is, which renderers fit it, how long and how wide it is.

The only such table there is. A model that is not in it is known by its own config.json and chat template.
"""

from cookhouse.models.catalog.dims import Dims
from cookhouse.models.catalog.families import FAMILIES, TEMPLATE, Family
from cookhouse.models.catalog.lookup import (
    check_renderer,
    context_tokens,
    default_renderer,
    dims,
    family_of,
    renderer_names,
    renderer_without_thinking,
    renderers_of_family,
    why_template,
)

__all__ = [
    "FAMILIES",
    "TEMPLATE",
    "Dims",
    "Family",
    "check_renderer",
    "context_tokens",
    "default_renderer",
    "dims",
    "family_of",
    "renderer_names",
    "renderer_without_thinking",
    "renderers_of_family",
    "why_template",
]
