"""A solution's process: nothing that runs here knows what the tests expect.

Whatever this process is made to send, it is read as plain data, and compared in another process.
"""

import importlib
import json
import os
import re
import socket
import struct
import sys
import types
from typing import Any

from .plain import dumps, loads

_LENGTH = struct.Struct("!I")
_MAX_BYTES = 16 << 20  # of a message
_PEER_FD = 3


def run(code: str) -> None:
    """Run a program as `__main__`, with the names that judges give."""
    sys.setrecursionlimit(RECURSION_LIMIT)
    namespace = sys.modules["__main__"].__dict__
    namespace.pop("run", None)
    namespace.update(names_for(code))
    exec(compile(code, "main.py", "exec", dont_inherit=True), namespace)


def call(code: str, entry_point: str, arguments: str) -> None:
    """Print the result of one call as JSON; what the solution prints goes to standard error."""
    output = os.dup(1)
    os.dup2(2, 1)
    sys.setrecursionlimit(RECURSION_LIMIT)
    given = names_for(code)
    module = _load(code, given)
    if entry_point in given and module.__dict__[entry_point] is given[entry_point]:
        del module.__dict__[entry_point]  # the solution's own is a method of `Solution`: `search`, `count`
    function = _find(module, entry_point)
    result = dumps(function(*loads(arguments)))
    with os.fdopen(output, "w", encoding="utf-8") as file:
        file.write(result)


def serve(code: str) -> None:
    """Do what a judge asks, until it closes the socket."""
    os.dup2(2, 1)
    with socket.socket(fileno=_PEER_FD) as judge:
        host = _Host(_load(code))
        send(judge, {"names": [name for name in host.objects[0].__dict__ if not name.startswith("__")]})
        while (request := receive(judge)) is not None:
            send(judge, host.answer(request))


class _Host:
    """Objects that the judge holds handles of; 0 is the solution's module."""

    def __init__(self, module: types.ModuleType) -> None:
        self.objects: list[Any] = [module]

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"value": dumps(self._do(request), self._keep)}
        except BaseException as error:
            return {"error": type(error).__name__, "text": str(error)[:1000]}

    def _do(self, request: dict[str, Any]) -> Any:
        target = self.objects[request["of"]]
        if "get" in request:
            return _find(target, request["get"]) if target is self.objects[0] else getattr(target, request["get"])
        if "set" in request:
            return setattr(target, request["set"], self._value(request["value"]))
        return target(*self._value(request["args"]), **self._value(request["kwargs"]))

    def _value(self, text: str) -> Any:
        return loads(text, self.objects.__getitem__)

    def _keep(self, value: Any) -> int:
        self.objects.append(value)
        return len(self.objects) - 1


def _load(code: str, names: dict[str, Any] | None = None) -> types.ModuleType:
    """The solution as a module that is not `__main__`, so that its own demonstration does not run."""
    module = types.ModuleType("solution")
    module.__dict__.update(names or {})
    sys.modules["solution"] = module
    exec(compile(code, "solution.py", "exec", dont_inherit=True), module.__dict__)
    return module


def _find(module: types.ModuleType, name: str) -> Any:
    """A function of the solution, or a method of its class `Solution`."""
    if not hasattr(module, name) and hasattr(module, "Solution"):
        return getattr(module.Solution(), name)
    return getattr(module, name)


def send(peer: socket.socket, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode()
    if len(data) > _MAX_BYTES:
        data = json.dumps({"error": "ValueError", "text": f"a message of more than {_MAX_BYTES} bytes"}).encode()
    peer.sendall(_LENGTH.pack(len(data)) + data)


def receive(peer: socket.socket) -> dict[str, Any] | None:
    """The next message; None when the other side has closed. Raises ValueError for what is no message."""
    with peer.makefile("rb", buffering=0) as file:
        prefix = _read(file, _LENGTH.size)
        if prefix is None:
            return None
        (size,) = _LENGTH.unpack(prefix)
        if size > _MAX_BYTES:
            raise ValueError(f"a message of {size} bytes; at most {_MAX_BYTES} are read")
        data = _read(file, size)
    message = None if data is None else json.loads(data)
    if message is not None and not isinstance(message, dict):
        raise ValueError("a message that is no object")
    return message


def _read(file: Any, num_bytes: int) -> bytes | None:
    data = bytearray()
    while len(data) < num_bytes:
        part = file.read(num_bytes - len(data))
        if not part:
            return None
        data += part
    return bytes(data)


_STARRED = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json", "typing"),
    "builtins",  # last: `pow` and `open` are Python's own
)
_MODULES = (*_STARRED, "array", "cmath", "decimal", "fractions", "os", "time")
RECURSION_LIMIT = 50_000
_NUMPY = re.compile(r"(?<![\w.])np\.")


def _public(name: str) -> dict[str, Any]:
    module = importlib.import_module(name)
    names = getattr(module, "__all__", None) or [key for key in vars(module) if not key.startswith("_")]
    return {key: getattr(module, key) for key in names}


NAMES: dict[str, Any] = {}
"""Names that programs of contests use without importing them: LiveCodeBench, APPS and TACO put star imports of these
modules before a program, and the modules themselves."""
for _name in _STARRED:
    NAMES |= _public(_name)
NAMES |= {_name: importlib.import_module(_name) for _name in _MODULES}


def names_for(code: str) -> dict[str, Any]:
    """`NAMES`, with numpy as `np` for a program that uses it."""
    if _NUMPY.search(code):
        try:
            return NAMES | {"np": importlib.import_module("numpy")}
        except ImportError:
            pass
    return dict(NAMES)
