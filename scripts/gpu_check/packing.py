"""Few files that come back: logs, records and compile caches, each in an archive that is written anew after a stage."""

import io
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path

PART_BYTES = 15 * 2**20
MOST_PARTS = 4
_MOST_LOG_BYTES = 2**21
_NOT_NEEDED = (".llir", ".ttir", ".ttgir", ".ptx", ".source")
"""Of Triton's cache: only for a reader. What runs is compiled from them and lies beside."""
_CACHES = "caches.tar.gz"


def pack_files(target: Path, files: Iterable[Path], root: Path) -> None:
    """An archive of files by their paths below `root`, of long ones the first part and the last."""
    temporary = target.with_name(f".{target.name}")
    with tarfile.open(temporary, "w:gz", compresslevel=5) as archive:
        for file in files:
            content = _ends(file.read_bytes())
            info = tarfile.TarInfo(str(file.relative_to(root)))
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    temporary.replace(target)


def pack_caches(folder: Path, output: Path) -> str:
    """Write all of a folder, in parts that fit, or nothing if it is too much; return a note on its size."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and not file.is_symlink() and file.suffix not in _NOT_NEEDED:
                archive.add(file, str(file.relative_to(folder)), recursive=False)
    content = packed.getbuffer()
    if len(content) > MOST_PARTS * PART_BYTES:
        return f"compile caches of {len(content) / 1e6:.0f} MB are too much to take along"
    for index in range(MOST_PARTS):
        part, piece = output / f"{_CACHES}.{index}", content[index * PART_BYTES : (index + 1) * PART_BYTES]
        if len(piece):
            temporary = part.with_name(f".{part.name}")
            temporary.write_bytes(piece)
            temporary.replace(part)
        else:
            part.unlink(missing_ok=True)
    return f"compile caches of {len(content) / 1e6:.0f} MB"


def unpack_caches(earlier: Path, folder: Path) -> int:
    """Put the caches of an earlier call where they were, as Triton names its files by their whole paths; how many."""
    parts = [part for index in range(MOST_PARTS) if (part := earlier / f"{_CACHES}.{index}").exists()]
    if not parts:
        return 0
    content = io.BytesIO(b"".join(part.read_bytes() for part in parts))
    with tarfile.open(fileobj=content, mode="r:gz") as archive:
        archive.extractall(folder, filter="data")
        return len(archive.getnames())


def _ends(content: bytes) -> bytes:
    if len(content) <= _MOST_LOG_BYTES:
        return content
    half = _MOST_LOG_BYTES // 2
    return content[:half] + f"\n... {len(content) - 2 * half} bytes left out ...\n".encode() + content[-half:]


def set_folder(folder: Path) -> Path:
    """Make a folder that nobody else writes to.

    Raises:
        RuntimeError: another user has it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise RuntimeError(f"{folder} belongs to another user; name one of your own: --scratch")
    return folder
