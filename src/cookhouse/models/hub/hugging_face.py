"""The Hugging Face hub, or a mirror of it."""

import logging
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cookhouse.errors import InputError, ServiceError
from cookhouse.models.hub.port import HubPart, check_name, is_whole

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_TIMEOUT_SECONDS = 10.0
_WAY_OUT = "name a local folder that holds the model"
_TOKENIZER_PATTERNS = ("*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken")
_PATTERNS = {
    HubPart.CONFIG: ("config.json",),
    HubPart.TOKENIZER: _TOKENIZER_PATTERNS,
    HubPart.MODEL: (*_TOKENIZER_PATTERNS, "*.safetensors"),
}
_IGNORED = ("*/*", "*.bin.index.json", "consolidated*")
"""Other formats of the same weights."""

_log = logging.getLogger(__name__)


class HuggingFaceHub:
    """A `HubClient` over `huggingface_hub`, with its cache, its environment variables (HF_TOKEN, HF_HOME, HF_ENDPOINT,
    HF_HUB_OFFLINE) and its progress bars.

    `say` is called with what is downloaded, and its size, before that begins; by default it is logged.
    """

    def __init__(
        self,
        *,
        token: str | None = None,
        endpoint: str | None = None,
        cache_dir: Path | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._token = token
        self._endpoint = endpoint
        self._cache_dir = cache_dir
        self._say = say or _log.info

    @property
    def api(self) -> "HfApi":
        """The hub's own client, at this endpoint and with this token."""
        from huggingface_hub import HfApi

        return HfApi(endpoint=self._endpoint, token=self._token)

    def find(self, name: str, part: HubPart) -> Path | None:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

        check_name(name)
        try:
            folder = Path(
                snapshot_download(
                    name,
                    local_files_only=True,
                    cache_dir=self._cache_dir,
                    allow_patterns=list(_PATTERNS[part]),
                    ignore_patterns=list(_IGNORED),
                )
            )
        except (LocalEntryNotFoundError, HFValidationError):
            return None
        return folder if is_whole(folder, part) else None

    def download(self, name: str, part: HubPart) -> Path:
        found = self.find(name, part)
        if found is not None:
            return found
        self._probe(name, part)
        return self._fetch(name, part)

    def upload(self, folder: Path, name: str, *, private: bool = True) -> str:
        from huggingface_hub import constants, get_token
        from huggingface_hub.errors import HfHubHTTPError

        check_name(name)
        if not folder.is_dir():
            raise InputError(f"there is no folder {folder} to upload as {name}")
        if constants.is_offline_mode():
            raise InputError(f"{folder} cannot be uploaded as {name}: HF_HUB_OFFLINE is set; unset it")
        if not (self._token or get_token()):
            raise InputError(
                f"no token to write to {name} with: set HF_TOKEN to one that may write, or log in with `hf auth login`"
            )
        api = self.api
        try:
            api.create_repo(name, private=private, exist_ok=True)
            api.upload_folder(repo_id=name, folder_path=folder)
        except HfHubHTTPError as error:
            if error.response.status_code in (401, 403):
                raise InputError(
                    f"you may not write to {name}: {_line(error)}; set HF_TOKEN to a token that may"
                ) from error
            raise ServiceError(f"the hub failed while {folder} was uploaded as {name}: {_line(error)}") from error
        except Exception as error:  # transport errors have no common class across versions of the hub's client
            raise ServiceError(f"the hub cannot be reached to upload {folder} as {name}: {_line(error)}") from error
        return f"{api.endpoint}/{name}"

    def _probe(self, name: str, part: HubPart) -> None:
        """One request with a time limit: a machine without a network hears of it at once, not after minutes."""
        from huggingface_hub import constants
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError

        missing = f"{name!r} is no local folder, and its {part.value} is not in {self._cache}"
        if constants.is_offline_mode():
            raise InputError(f"{missing}, and HF_HUB_OFFLINE is set; {_WAY_OUT}")
        try:
            self.api.model_info(name, timeout=_TIMEOUT_SECONDS)
        except HFValidationError as error:
            raise InputError(f"{name!r} is neither a local folder nor a possible hub id; {_WAY_OUT}") from error
        except RepositoryNotFoundError as error:
            raise InputError(
                f"the hub has no model {name!r} that you may read; check the name, set HF_TOKEN if it is gated, "
                f"or {_WAY_OUT}"
            ) from error
        except HfHubHTTPError as error:
            raise InputError(
                f"the hub would not describe {name!r}: {_line(error)}; try again, or {_WAY_OUT}"
            ) from error
        except Exception as error:  # transport errors have no common class across versions of the hub's client
            raise InputError(f"{missing}, and the hub cannot be reached ({error}); {_WAY_OUT}") from error

    def _fetch(self, name: str, part: HubPart) -> Path:
        from huggingface_hub import snapshot_download

        snapshot: Callable[..., Any] = partial(
            snapshot_download,
            name,
            token=self._token,
            endpoint=self._endpoint,
            cache_dir=self._cache_dir,
            allow_patterns=list(_PATTERNS[part]),
            ignore_patterns=list(_IGNORED),
        )
        try:
            plan: list[Any] = snapshot(dry_run=True)
            missing = [file for file in plan if file.will_download]
            num_bytes = sum(file.file_size or 0 for file in missing)
            self._check_room(name, num_bytes)
            self._say(
                f"downloading the {part.value} of {name}: {len(missing)} files, {_size(num_bytes)}, to {self._cache}"
            )
            folder = Path(str(snapshot()))
        except InputError:
            raise
        except Exception as error:  # as above, and those of the disk
            raise InputError(
                f"{name!r} cannot be downloaded to {self._cache}: {_line(error)}; try again, or {_WAY_OUT}"
            ) from error
        if not is_whole(folder, part):
            raise InputError(
                f"the hub's {name!r} holds no whole {part.value} in a format that is read here; {_WAY_OUT}"
            )
        return folder

    def _check_room(self, name: str, num_bytes: int) -> None:
        there = next(path for path in (self._cache, *self._cache.parents) if path.exists())
        free = shutil.disk_usage(there).free
        if num_bytes > free:
            raise InputError(
                f"{name} takes {_size(num_bytes)}, and {self._cache} has room for {_size(free)}; free some, or set "
                "HF_HOME to a folder on a larger disk"
            )

    @property
    def _cache(self) -> Path:
        from huggingface_hub import constants

        return Path(constants.HF_HUB_CACHE) if self._cache_dir is None else self._cache_dir


def _line(error: Exception) -> str:
    """The first line of what the hub's client says, which may be many."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:,.1f} GB" if num_bytes >= 1e8 else f"{num_bytes / 1e6:,.1f} MB"
