"""Levels of isolation of a local sandbox: found by trying, best first, and named in words."""

import dataclasses
import enum
import os
import shutil
import sys
from collections.abc import Sequence

from cookhouse.errors import InputError

WEAK_VARIABLE = "COOKHOUSE_WEAK_SANDBOX"


class IsolationMethod(enum.StrEnum):
    """Ways to isolate a worker, best first."""

    NAMESPACES = "namespaces"  # Linux namespaces, opened by the worker
    BUBBLEWRAP = "bubblewrap"  # the same, opened by bwrap
    PROCESS = "process"  # sessions and resource limits alone


@dataclasses.dataclass(frozen=True, kw_only=True)
class Isolation:
    """Restrictions that a local sandbox puts on a program, and those that it does not."""

    method: IsolationMethod
    missing: tuple[str, ...]

    def __str__(self) -> str:
        common = "empty environment, limits on time, memory, files, processes and output"
        how = {
            IsolationMethod.NAMESPACES: "own process, network, user and file-system namespaces; " + common,
            IsolationMethod.BUBBLEWRAP: "bubblewrap: own process, network, user and file-system namespaces; " + common,
            IsolationMethod.PROCESS: "own session and folder; " + common,
        }[self.method]
        return how + ("; NOT isolated: " + "; ".join(self.missing) if self.missing else "")


def possible_methods() -> list[IsolationMethod]:
    """Methods worth trying on this system, best first; the last always works."""
    if sys.platform != "linux":
        return [IsolationMethod.PROCESS]
    bubblewrap = [IsolationMethod.BUBBLEWRAP] if shutil.which("bwrap") else []
    return [IsolationMethod.NAMESPACES, *bubblewrap, IsolationMethod.PROCESS]


def check_weak_isolation(reasons: Sequence[str], *, is_chosen: bool) -> None:
    """Refuse, unless it is allowed, to run untrusted programs isolated by nothing but their process.

    Only where the caller has chosen so, or `COOKHOUSE_WEAK_SANDBOX=1` is set; never as root, whose programs nothing
    would keep from the files of all users. Raises InputError otherwise; `reasons` say why nothing better is there.
    """
    is_root = os.geteuid() == 0
    is_allowed = is_chosen or os.environ.get(WEAK_VARIABLE) == "1"
    if is_allowed and not is_root:
        return
    why = "; ".join(reasons) or "resource limits alone were asked for"
    ways = (
        "install bubblewrap, allow user namespaces, or give grade_code a hosted sandbox (SandboxFusion, ModalSandbox)"
    )
    if is_root:
        raise InputError(
            f"programs of a model are not run as root without isolation ({why}), whatever {WEAK_VARIABLE} says: "
            f"run as another user, {ways}"
        )
    raise InputError(
        f"programs of a model would not be kept from the files of this user ({why}): {ways}; "
        f"{WEAK_VARIABLE}=1 runs them with limits alone"
    )


def describe(method: IsolationMethod, *, has_own_user: bool, has_filter: bool) -> Isolation:
    """The statement for a method, programs' user, and the filter of system calls."""
    missing = []
    if method is IsolationMethod.PROCESS:
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
    return Isolation(method=method, missing=tuple(missing))
