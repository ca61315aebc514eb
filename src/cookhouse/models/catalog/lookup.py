"""Models by name or folder: what the table says of them, and what their own files say."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cookhouse.assets import TINY_MODEL, resolve_model
from cookhouse.errors import InputError
from cookhouse.models.catalog.context import context_of_config
from cookhouse.models.catalog.dims import Dims, dims_of_config, dims_of_name, text_values
from cookhouse.models.catalog.families import (
    FAMILIES,
    PLAIN,
    TEMPLATE,
    Entry,
    entry_of_name,
    family_of_type,
    renderers_of_type,
)
from cookhouse.models.catalog.files import has_chat_template, has_config, model_folder, read_config, tokenizer_folder
from cookhouse.models.names import plain_name
from cookhouse.models.tokenizers import get_tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """Facts known of a model before its chat template is tried."""

    family: str | None
    renderers: tuple[str, ...]
    """The default first, unless there is a template to try."""
    folder: Path | None = None
    """Where the chat template lies that decides between `candidates`; None: nothing is left to decide."""
    candidates: tuple[str, ...] = ()


def family_of(model: str) -> str | None:
    """The family of an embedded model, a hub id or a local folder; None: none of the table.

    A name that the table does not have is known by its files, which the hub is asked for if they are not in its cache.

    Raises:
        InputError: a folder holds no config.json, or one that cannot be read; or there is no such model to be had.
    """
    return _lookup(model).family


def renderer_names(model: str, *, files: str | None = None) -> tuple[str, ...]:
    """Renderers that fit a model, its default first. `files` and errors as for `default_renderer`."""
    known = _lookup(model, files)
    return tuple(dict.fromkeys((_default_of(known), *known.renderers, TEMPLATE)))


def default_renderer(model: str, *, files: str | None = None) -> str:
    """The renderer of a model when none is named; of a base model, `role_colon`.

    Of a folder, and of a model that the table does not have, that is the renderer of its kind that writes a few
    conversations as its own chat template does; if none does, `template`. `files` is the folder that the model is known
    to lie in, whatever its name.

    Raises:
        InputError: as `family_of`; or its tokenizer or chat template cannot be read.
    """
    return _default_of(_lookup(model, files))


def why_template(model: str) -> str:
    """Why the default is `template`, though there are renderers of the model's kind; empty where there are none, or it
    is another. Errors as `default_renderer`.
    """
    known = _lookup(model)
    return "" if known.folder is None else fitting_renderer(known.folder, known.candidates).why_template


def renderer_without_thinking(model: str) -> str:
    """As `default_renderer`, in the variant that has the model answer at once, if its family has one."""
    name = default_renderer(model)
    quiet = f"{name}_disable_thinking"
    return quiet if quiet in renderer_names(model) else name


def renderers_of_family(model: str, renderer: str, *, files: str | None = None) -> tuple[str, ...]:
    """`renderer`, and those of the model's family that it may be exchanged for: they differ in how the model thinks.
    Errors as `family_of`.
    """
    fitting = [name for name in renderer_names(model, files=files) if name not in (*PLAIN, TEMPLATE)]
    if renderer not in fitting:
        return (renderer,)
    quiet = f"{renderer}_disable_thinking"
    return tuple(dict.fromkeys([renderer, *(name for name in fitting if name == quiet), *fitting]))


def check_renderer(model: str, renderer: str, *, force: bool = False) -> None:
    """Refuse a renderer that does not fit a model: the answers of a mismatched pair are mostly noise.

    Raises:
        InputError: the pair is not in the table and `force` is false.
    """
    if force:
        return
    names = renderer_names(model)
    if renderer not in names:
        raise InputError(
            f"renderer {renderer!r} does not fit {model!r} (family {family_of(model) or 'unknown'}); use "
            f"{' or '.join(names)}, or force the pair (force_renderer=true)"
        )


def dims(model: str) -> Dims | None:
    """Sizes of a model, from its config.json if that is on this machine, else from the table. None: neither says."""
    config = _config_here(model)
    found = None if config is None else dims_of_config(config)
    return found or dims_of_name(_own_name(model))


def context_tokens(model: str) -> int | None:
    """Tokens that a model takes at most, prompt and answer together, from its config.json if that is on this machine,
    else from the table. None: neither says, and only its service knows.
    """
    config = _config_here(model)
    if config is not None:
        return context_of_config(config)
    entry = entry_of_name(_own_name(model))
    return None if entry is None else entry.context_tokens


def _config_here(model: str) -> dict[str, Any] | None:
    folder = model_folder(model)
    return read_config(folder) if folder is not None and has_config(folder) else None


def _own_name(model: str) -> str:
    """The name after the organization, or of the folder."""
    return Path(resolve_model(model)).name


def _lookup(model: str, files: str | None = None) -> _Known:
    if plain_name(model) == TINY_MODEL:
        family = FAMILIES["qwen3"]
        return _Known(family=family.name, renderers=("qwen3_instruct", *family.renderers[:2], *PLAIN))
    named = entry_of_name(_own_name(model))
    folder = Path(files or resolve_model(model))
    if folder.is_dir():
        return _of_files(folder, read_config(folder), named)
    if named is not None:
        return _Known(family=named.family, renderers=named.renderers)
    folder = tokenizer_folder(model)  # downloaded now, so that a first run decides as later ones
    return _of_files(folder, read_config(folder) if has_config(folder) else {}, named)


def _default_of(known: _Known) -> str:
    return known.renderers[0] if known.folder is None else fitting_renderer(known.folder, known.candidates).renderer


def _of_files(folder: Path, config: Mapping[str, Any], named: Entry | None) -> _Known:
    model_type = config.get("model_type")
    family = family_of_type(model_type, text_values(config).get("vocab_size"))
    listed = named.renderers if named is not None and named.family == family else ()
    own = listed or (*(FAMILIES[family].renderers if family is not None else ()), *PLAIN)
    if not has_chat_template(folder):
        return _Known(family=family, renderers=listed or tuple(dict.fromkeys((*PLAIN[:1], *own))))
    if listed and listed[0] in (*PLAIN, TEMPLATE):
        return _Known(family=family, renderers=listed)
    candidates = tuple(dict.fromkeys((*listed, *renderers_of_type(model_type))))
    return _Known(family=family, renderers=own, folder=folder, candidates=candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """The renderer that fits a model."""

    renderer: str
    why_template: str = ""
    """Differences from the renderer of the model's kind, if this is `template` and such a renderer has its tokens."""


@cache
def fitting_renderer(folder: Path, candidates: tuple[str, ...]) -> Fitting:
    """The first candidate that writes a few conversations as the folder's chat template does, else `template`.

    Raises:
        InputError: the folder's tokenizer or its chat template cannot be read.
    """
    if not candidates:
        return Fitting(renderer=TEMPLATE)
    from cookhouse.chat import get_renderer  # loads the SDK
    from cookhouse.chat.checks import difference_from_template

    tokenizer = get_tokenizer(str(folder), download=False)
    reasons = []
    for name in candidates:
        try:
            renderer = get_renderer(name, tokenizer)
        except InputError:  # it writes tokens that this tokenizer lacks
            continue
        difference = difference_from_template(renderer)
        if difference is None:
            return Fitting(renderer=name)
        reasons.append(f"{name} would write another format ({difference})")
    return Fitting(renderer=TEMPLATE, why_template=next(iter(reasons), ""))
