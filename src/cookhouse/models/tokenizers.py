"""Tokenizers by model name."""

import logging
import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cookhouse.assets import resolve_model
from cookhouse.errors import InputError
from cookhouse.models.hub import HubPart, current_hub

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_LLAMA3 = "meta-llama/Llama-3"
_LLAMA3_TOKENIZER = "thinkingmachineslabinc/meta-llama-3-tokenizer"
"""The same vocabulary from a repository that is not gated."""
_loading = threading.Lock()
"""Two threads that import transformers at a time may see half of it."""


def load_transformers() -> Any:
    """Import transformers, which takes three seconds where torch is installed. Where it is not, that is as it should be
    for a client: what transformers says of it is not shown.
    """
    hide_notice_of_torch()
    import transformers

    return transformers


def hide_notice_of_torch() -> None:
    """Drop what transformers logs at its import where there is no torch: tokenizers are all that is taken of it."""
    logging.getLogger("transformers").addFilter(_is_not_about_torch)


def _is_not_about_torch(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("PyTorch was not found")


def get_tokenizer(name: str, *, download: bool = True) -> "PreTrainedTokenizerBase":
    """The tokenizer of an embedded model, a local folder or a hub id; loaded once in a process.

    A hub id is looked up in `cookhouse.models.hub.current_hub()`; without `download` no network is asked for it.

    Raises:
        InputError: there is no such model, the hub cannot be reached, or what is there is no tokenizer; without
            `download`, it is not on this machine.
    """
    folder = _folder(_LLAMA3_TOKENIZER if name.startswith(_LLAMA3) else resolve_model(name), download=download)
    with _loading:
        return _load(folder, name)


def _folder(source: str, *, download: bool) -> Path:
    if Path(source).is_dir():
        return Path(source)
    if Path(source).is_absolute() or source.startswith((".", "~")):
        raise InputError(f"there is no folder {source}; name a folder that holds a tokenizer, or a hub id")
    if download:
        return current_hub().download(source, HubPart.TOKENIZER)
    found = current_hub().find(source, HubPart.TOKENIZER)
    if found is None:
        raise InputError(f"the tokenizer of {source} is not on this machine; a run with that model downloads it")
    return found


@cache
def _load(folder: Path, name: str) -> Any:
    transformers = load_transformers()
    try:
        # Else it asks at the terminal whether to run what a stranger's folder brings along.
        return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # its files are a stranger's, and libraries raise anything for them
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(f"no tokenizer can be loaded for {name!r} from {folder}: {reason}") from error
