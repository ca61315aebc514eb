"""Tokenizers by model name."""

import logging
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cookhouse.assets import resolve_model
from cookhouse.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_LLAMA3 = "meta-llama/Llama-3"
_LLAMA3_TOKENIZER = "thinkingmachineslabinc/meta-llama-3-tokenizer"
"""The same vocabulary from a repository that is not gated."""
_TIMEOUT_SECONDS = 10.0

_log = logging.getLogger(__name__)


def get_tokenizer(name: str) -> "PreTrainedTokenizerBase":
    """The tokenizer of an embedded model, a local folder or a hub id; loaded once in a process.

    A hub id is read from the local cache if it is there, else from the hub after one short probe, so that a machine
    without a network hears of it at once.

    Raises:
        InputError: there is no such model, the hub cannot be reached, or what is there is no tokenizer.
    """
    return _load(_LLAMA3_TOKENIZER if name.startswith(_LLAMA3) else resolve_model(name), name)


@cache
def _load(source: str, name: str) -> Any:
    from transformers import AutoTokenizer  # three seconds, and torch

    if Path(source).is_dir():
        return _from(AutoTokenizer, source, name, local_files_only=True)
    if Path(source).is_absolute() or source.startswith((".", "~")):
        raise InputError(f"there is no folder {source}; name a folder that holds a tokenizer, or a hub id")
    try:
        return AutoTokenizer.from_pretrained(source, local_files_only=True)
    except (OSError, ValueError):
        _log.info("%s is not in the local cache; asking the hub", source)
    _probe(source, name)
    return _from(AutoTokenizer, source, name, local_files_only=False)


def _from(loader: Any, source: str, name: str, *, local_files_only: bool) -> Any:
    try:
        return loader.from_pretrained(source, local_files_only=local_files_only)
    except (OSError, ValueError, KeyError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(f"no tokenizer can be loaded for {name!r} from {source}: {reason}") from error


def _probe(source: str, name: str) -> None:
    """One request with a time limit; loading itself would retry for most of a minute, once for each file."""
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    way_out = "name a local folder that holds the model"
    if constants.HF_HUB_OFFLINE:
        raise InputError(f"{name!r} is no local folder, not in the hub's cache, and HF_HUB_OFFLINE is set; {way_out}")
    try:
        HfApi().model_info(source, timeout=_TIMEOUT_SECONDS)
    except HFValidationError as error:
        raise InputError(f"{name!r} is neither a local folder nor a possible hub id; {way_out}") from error
    except RepositoryNotFoundError as error:
        raise InputError(
            f"the hub has no model {source!r} that you may read; check the name, set HF_TOKEN if it is gated, "
            f"or {way_out}"
        ) from error
    except HfHubHTTPError as error:
        raise InputError(f"the hub would not describe {source!r}: {error}; try again, or {way_out}") from error
    except Exception as error:  # transport errors have no common class across versions of the hub's client
        raise InputError(
            f"{name!r} is no local folder and not in the hub's cache, and the hub cannot be reached ({error}); "
            f"{way_out}"
        ) from error
