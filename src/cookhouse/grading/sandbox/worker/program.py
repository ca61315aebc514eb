"""A program as the main module of a forked child, with an interpreter's customary ending."""

import atexit
import gc
import os
import sys
import traceback
import types
from typing import NoReturn

FILE_NAME = "main.py"


def prepare(environment: dict[str, str]) -> None:
    """Make this interpreter look like a new one to the programs of its forks; done once, since it takes a while."""
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [FILE_NAME]
    sys.set_int_max_str_digits(0)  # time is limited in any case
    sys.path.insert(0, environment["HOME"])
    reader, writer = os.pipe()  # streams ask what they are on when they are made; programs have pipes
    for fd, end in ((0, reader), (1, writer), (2, writer)):
        os.dup2(end, fd)
    os.close(reader)
    os.close(writer)
    sys.stdin = os.fdopen(0, encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.__dict__.update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)
    own = __package__ or ""
    for name in [name for name in sys.modules if name == own or name.startswith(own + ".")]:
        del sys.modules[name]


def run(source: str) -> NoReturn:
    """Run `source` as `__main__` and end the process as the interpreter would: status 1 on an exception."""
    gc.enable()
    status = _run_main(source)
    for step in (_wait_for_threads, atexit._run_exitfuncs, _flush, _free_objects, _flush):
        try:
            step()
        except BaseException:
            status = status or 120  # the interpreter's own status where its streams cannot be flushed
    os._exit(status)


def _run_main(source: str) -> int:
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=FILE_NAME, __builtins__=__builtins__)
    sys.modules["__main__"] = main
    try:
        exec(compile(source, FILE_NAME, "exec", dont_inherit=True), main.__dict__)
    except SystemExit as error:
        return _exit_status(error)
    except BaseException as error:
        frames = error.__traceback__.tb_next if error.__traceback__ is not None else None  # without this function's
        traceback.print_exception(type(error), error, frames)
        return 1
    return 0


def _wait_for_threads() -> None:
    """Wait for threads that are no daemons."""
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()


def _free_objects() -> None:
    """Let go of the program's objects: some write only now, from `__del__` or the buffer of a file."""
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    sys.modules.pop("__main__", None)
    gc.collect()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not _is_closed(stream):
            stream.flush()


def _is_closed(stream: object) -> bool:
    try:
        return bool(getattr(stream, "closed", False))
    except ValueError:  # its buffer was detached, and is another stream's
        return True


def _exit_status(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)  # noqa: T201 - as the interpreter does
    return 1
