"""URLs of commands, and the folders that they name."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from cookhouse.engine.contract.commands import Url


def shared_folder(url: Url) -> Path | None:
    """Folder that a URL of the form `file:///FOLDER` names; None: it is of another form."""
    parts = urlsplit(url)
    if parts.scheme == "file" and not parts.netloc and not parts.query and not parts.fragment:
        path = Path(unquote(parts.path))
        if path.is_absolute() and ".." not in path.parts and "\0" not in str(path):
            return path
    return None
