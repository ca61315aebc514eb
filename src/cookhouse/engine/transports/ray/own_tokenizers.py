"""Folders of tokenizers as they are on the server's machine: a node may have the package elsewhere."""

from dataclasses import replace
from pathlib import Path

from cookhouse.assets import resolve_model
from cookhouse.engine.contract import BaseModelInfo, Event, Up


def with_own_tokenizers(event: Event) -> Event:
    """An event of a worker, for the server."""
    if isinstance(event, Up):
        return replace(event, base_models=tuple(map(_with_own_tokenizer, event.base_models)))
    return event


def _with_own_tokenizer(info: BaseModelInfo) -> BaseModelInfo:
    folder = Path(resolve_model(info.name))
    return replace(info, tokenizer_id=str(folder.resolve())) if folder.is_dir() else info
