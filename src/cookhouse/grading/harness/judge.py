"""A judge's process: runs test code whose calls to the solution go to another process, and prints the verdict.

The tests and what they expect exist only here, and nothing of the solution runs here; what comes back is plain data.
"""

import builtins
import importlib
import json
import os
import socket
import sys
import traceback
from typing import Any

from .plain import dumps, loads
from .solution import receive, send

_PEER_FD = 3


def judge(test: str, setup: str, names: list[str]) -> None:
    """Run `setup`, then `test`. `names` are the solution's, and so are others if nobody else defines them."""
    output = os.dup(1)
    os.dup2(2, 1)
    verdict: dict[str, Any] = {"passed": True, "error": ""}
    try:
        with socket.socket(fileno=_PEER_FD) as peer:
            _run(test, setup, names, Solution(peer))
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f" ({last.line or f'line {last.lineno}'})" if isinstance(error, AssertionError) else ""
        verdict = {"passed": False, "error": f"{type(error).__name__}: {error}{where}"[:500]}
    os.write(output, json.dumps(verdict).encode())


def _run(test: str, setup: str, names: list[str], solution: "Solution") -> None:
    namespace = _Namespace(solution)
    namespace.update(__name__="judge", __builtins__=builtins)
    exec(compile(setup, "setup.py", "exec", dont_inherit=True), namespace)
    for name in names:
        namespace[name] = solution.get(0, name)
    exec(compile(test, "test.py", "exec", dont_inherit=True), namespace)


class _Namespace(dict[str, Any]):
    """Global names of the tests. Python's own come before the solution's, which could redefine `all` or `math`."""

    def __init__(self, solution: "Solution") -> None:
        super().__init__()
        self._solution = solution

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            raise KeyError(name)
        if name in sys.stdlib_module_names:
            return importlib.import_module(name)
        if name in self._solution.names:
            return self._solution.get(0, name)
        raise KeyError(name)


class Solution:
    """The other process: every request is a message, every answer plain data or a handle."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self.names = frozenset(str(name) for name in self._receive("names"))

    def get(self, of: int, name: str) -> Any:
        return self._ask({"of": of, "get": name})

    def set(self, of: int, name: str, value: Any) -> None:
        self._ask({"of": of, "set": name, "value": dumps(value, _handle_of)})

    def call(self, of: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._ask({"of": of, "args": dumps(args, _handle_of), "kwargs": dumps(kwargs, _handle_of)})

    def _ask(self, request: dict[str, Any]) -> Any:
        send(self._peer, request)
        return loads(str(self._receive("value")), lambda number: Remote(self, number))

    def _receive(self, key: str) -> Any:
        message = receive(self._peer)
        if message is None:
            raise RuntimeError("the solution's process ended")
        if key not in message:
            raise _as_exception(str(message.get("error")), str(message.get("text")))
        return message[key]


class Remote:
    """An object of the solution that is no plain data. It equals nothing but itself."""

    def __init__(self, solution: Solution, number: int) -> None:
        object.__setattr__(self, "_at", (solution, number))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        solution, number = self._at
        return solution.call(number, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        solution, number = object.__getattribute__(self, "_at")
        return solution.get(number, name)

    def __setattr__(self, name: str, value: Any) -> None:
        solution, number = self._at
        solution.set(number, name, value)


def _handle_of(value: Any) -> int:
    if not isinstance(value, Remote):
        raise TypeError(f"a test cannot pass a {type(value).__name__} to the solution")
    number: int = object.__getattribute__(value, "_at")[1]
    return number


def _as_exception(name: str, text: str) -> Exception:
    """The built-in exception of that name, for tests that expect one; the solution's own kinds are RuntimeError."""
    kind = getattr(builtins, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        return RuntimeError(f"{name}: {text}")
    try:
        return kind(text)
    except TypeError:  # UnicodeDecodeError wants more
        return RuntimeError(f"{name}: {text}")
