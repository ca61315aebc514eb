"""Limits of the control groups that a process is in: a container's memory and processor time.

Both versions of them, and both at once: files and units as in https://docs.kernel.org/admin-guide/cgroup-v2.html and
https://docs.kernel.org/admin-guide/cgroup-v1/. What cannot be read limits nothing.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

_MEMBERSHIP = Path("/proc/self/cgroup")
_ROOT = Path("/sys/fs/cgroup")
_MEMORY_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}
"""Limit, use, and the entry of memory.stat that counts pages of files that can go at once."""


class ControlGroups:
    """The groups of this process, with those around them: each of them limits it."""

    def __init__(self, membership: Path = _MEMBERSHIP, root: Path = _ROOT) -> None:
        self._root = root
        try:
            lines = membership.read_text(encoding="utf-8").splitlines()
        except OSError:
            lines = []
        self._groups = [tuple(line.split(":", 2)) for line in lines if line.count(":") >= 2]

    def free_bytes(self) -> int | None:
        """Memory that the tightest limit leaves; None without a limit."""
        found = []
        for version, folder in self._folders("memory"):
            limit_file, used_file, inactive = _MEMORY_FILES[version]
            # No file, or the word `max`; version 1 writes the largest number of pages there is.
            with contextlib.suppress(OSError, ValueError):
                limit, used = (int((folder / name).read_text()) for name in (limit_file, used_file))
                counts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                found.append(limit - used + int(counts.get(inactive, 0)))
        return max(0, min(found)) if found and min(found) < 2**62 else None

    def limit_bytes(self) -> int | None:
        """The tightest limit of memory; None without one."""
        found = []
        for version, folder in self._folders("memory"):
            with contextlib.suppress(OSError, ValueError):
                found.append(int((folder / _MEMORY_FILES[version][0]).read_text()))
        return min(found) if found and min(found) < 2**62 else None

    def num_cores(self) -> float | None:
        """Cores' worth of time that the tightest quota gives; None without a quota."""
        found = []
        for version, folder in self._folders("cpu"):
            with contextlib.suppress(OSError, ValueError):
                if version == 2:
                    quota, period = (folder / "cpu.max").read_text().split()
                else:
                    quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
                if int(quota) > 0 and int(period) > 0:  # version 1 writes -1 for none
                    found.append(int(quota) / int(period))
        return min(found, default=None)

    def _folders(self, controller: str) -> Iterator[tuple[int, Path]]:
        """Version and folder of each group that this controller may have limits in, the innermost first."""
        for _, controllers, path in self._groups:
            if not controllers:
                version, roots = 2, (self._root, self._root / "unified")
            elif controller in controllers.split(","):
                version, roots = 1, (self._root / controllers, self._root / controller)
            else:
                continue
            # Inside a container the path may be the host's, of which only the outermost folder is mounted here.
            parts = [part for part in path.split("/") if part not in ("", ".", "..")]
            for root in dict.fromkeys(roots):
                for depth in range(len(parts), -1, -1):
                    yield version, root.joinpath(*parts[:depth])
