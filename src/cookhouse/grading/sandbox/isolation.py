"""How well a local sandbox isolates: found out by trying, best first, and said in words."""

import dataclasses
import enum
import os
import shutil
import sys


class Walls(enum.StrEnum):
    """Ways to wall off a worker, best first."""

    NAMESPACES = "namespaces"  # Linux namespaces, opened by the worker
    BUBBLEWRAP = "bubblewrap"  # the same, opened by bwrap
    PROCESS = "process"  # sessions and resource limits alone


@dataclasses.dataclass(frozen=True, kw_only=True)
class Isolation:
    """What a local sandbox keeps a program from, and what it does not."""

    walls: Walls
    missing: tuple[str, ...]

    def __str__(self) -> str:
        common = "empty environment, limits on time, memory, files, processes and output"
        how = {
            Walls.NAMESPACES: "own process, network, user and file-system namespaces; " + common,
            Walls.BUBBLEWRAP: "bubblewrap: own process, network, user and file-system namespaces; " + common,
            Walls.PROCESS: "own session and folder; " + common,
        }[self.walls]
        return how + ("; NOT isolated: " + "; ".join(self.missing) if self.missing else "")


def possible_walls() -> list[Walls]:
    """Walls worth trying on this system, best first."""
    if sys.platform != "linux":
        return [Walls.PROCESS]
    bubblewrap = [Walls.BUBBLEWRAP] if shutil.which("bwrap") else []
    return [Walls.NAMESPACES, *bubblewrap, Walls.PROCESS]


def describe(walls: Walls, *, has_own_user: bool, has_filter: bool) -> Isolation:
    """The statement for walls that stand, programs' user, and the filter of system calls."""
    missing = []
    if walls is Walls.PROCESS:
        missing += [
            "files of the host can be read, and changed where its user may"
            if has_own_user
            else "files of this user can be read and changed"
        ]
        missing += ["memory and disk are limited for each process and file, not for all of a run together"]
        if sys.platform != "linux":
            missing += ["processes that leave their session are not found again"]
        if not has_filter:
            missing += ["the network can be reached"]
        if not has_filter and not has_own_user:
            missing += ["processes of this user can be signaled"]
        if os.getuid() == 0 and not has_own_user:
            missing += ["programs run as root"]
    elif not has_filter:
        missing += ["every system call that the kernel offers can be tried"]
    return Isolation(walls=walls, missing=tuple(missing))
