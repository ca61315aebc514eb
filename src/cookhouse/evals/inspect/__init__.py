"""Weights as a model of Inspect AI, and its tasks as evaluations. It is an extra: only `records` is imported early."""

import importlib.util
import sys

from cookhouse.errors import InputError
from cookhouse.extras import install_command


def require_inspect(what: str) -> None:
    """See that Inspect AI is installed. Raises `InputError` with the extra that brings it."""
    if importlib.util.find_spec("inspect_ai") is None:
        raise InputError(f"{what} needs Inspect AI, which is not installed: {install_command('inspect')}")


def task_place(name: str) -> str:
    """`file.py:task` for `file.py@task`, which is how tasks are spelled; any other name as it is."""
    file, at, task = name.rpartition("@")
    return f"{file}:{task}" if at and file.endswith(".py") else name


def task_spec(name: str) -> str:
    """`file.py@task` for `file.py:task`; any other name as it is."""
    file, colon, task = name.rpartition(":")
    return f"{file}@{task}" if colon and file.endswith(".py") else name


def is_inspect_task(thing: object) -> bool:
    """True if this is a function with Inspect AI's `@task`."""
    if "inspect_ai" not in sys.modules:  # who has the decorator has imported it
        return False
    from inspect_ai.util import registry_info

    try:
        return callable(thing) and registry_info(thing).type == "task"
    except ValueError:
        return False
