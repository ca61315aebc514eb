"""Start of a server's process before anything heavy is imported, and its command line.

Libraries load in a thread, and a server that was started early reads over its stdin what to serve.

    client ── socket: one line of JSON {"arguments": [...], "environ": {...}}, with two open files ──► stdin
                lock   held by the process until it ends
                log    becomes stderr
           ── the end of the socket: nothing was needed, or no more ──► the process ends

Until then it has touched no folder.
"""

import argparse
import functools
import gc
import json
import math
import os
import socket
import sys
import threading
from collections.abc import MutableMapping
from concurrent.futures import Future as ConcurrentFuture
from pathlib import Path
from typing import get_args

from cookhouse.engine.transports.ray.addresses import LOCAL
from cookhouse.models.tokenizers import hide_notice_of_torch
from cookhouse.server.settings import EndSessions, Settings

KEYS_VARIABLE = "COOKHOUSE_API_KEYS"
DATABASE_VARIABLE = "COOKHOUSE_DATABASE"
DEVICE_VARIABLE = "COOKHOUSE_DEVICE"
PRECISION_VARIABLE = "COOKHOUSE_PRECISION"
CACHE_VARIABLE = "COOKHOUSE_MAX_CACHE_BYTES"
SNAPSHOT_VARIABLE = "COOKHOUSE_MAX_SNAPSHOT_FILE_BYTES"
WAIT = "--wait"
RAY = "--ray"
_STDIN, _STDERR = 0, 2
_CHUNK_BYTES = 65536
_NUM_FILES = 2


@functools.cache
def loading() -> "ConcurrentFuture[None]":
    """Begin, the first time, and hand back what is done once FastAPI and the SDK are imported.

    Until then nobody else may import them: two threads that import a large library at a time may see half of it.
    """
    loaded: ConcurrentFuture[None] = ConcurrentFuture()
    threading.Thread(target=_load, args=(loaded,), name="libraries", daemon=True).start()
    return loaded


def _load(loaded: "ConcurrentFuture[None]") -> None:
    # Nearly all that imports make stays: looking through it for garbage would take a sixth of their time.
    gc.disable()
    try:
        import cookhouse.server.http.app
        import cookhouse.server.service  # noqa: F401
    except BaseException as error:
        loaded.set_exception(error)
    else:
        gc.freeze()
        loaded.set_result(None)
    finally:
        gc.enable()


def hide_torch() -> None:
    """Have nothing load torch in this process, which computes nothing. The SDK and transformers load it where they find
    it: twice the start, and three times the memory. Before either is imported.
    """
    sys.modules["torch"] = None  # type: ignore[assignment]
    hide_notice_of_torch()


def wait_for_arguments(environ: MutableMapping[str, str]) -> list[str] | None:
    """The command line, once the client has said it; None: it has gone. Changes `environ` as the client says."""
    # A copy of the descriptor: stdin itself stays open, and is watched for its end.
    with socket.socket(fileno=os.dup(_STDIN)) as client:
        text = b""
        files: list[int] = []
        while not text.endswith(b"\n"):
            part, received, _, _ = socket.recv_fds(client, _CHUNK_BYTES, _NUM_FILES)
            if not part:
                return None
            text += part
            files += received
    _, log = files  # the lock is nobody's but the process's
    os.dup2(log, _STDERR)
    os.close(log)
    message = json.loads(text)
    environ.update(message["environ"])
    return list(message["arguments"])


def command_line() -> argparse.ArgumentParser:
    """Parser of the arguments of `python -m cookhouse.server`."""
    parser = argparse.ArgumentParser(
        prog="python -m cookhouse.server",
        description="`python -m cookhouse.server`: a server in a process of its own.",
        allow_abbrev=False,
    )
    _add_places(parser)
    _add_workers(parser)
    _add_rules(parser)
    return parser


def _add_places(parser: argparse.ArgumentParser) -> None:
    """Addresses, folders, and names of weights."""
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    parser.add_argument("--state-dir", type=Path, required=True, help="folder of checkpoints and database")
    parser.add_argument(
        "--database",
        default=os.environ.get(DATABASE_VARIABLE) or None,
        help="postgresql://USER:PASSWORD@HOST/NAME, in place of the database in the state folder; "
        f"default: {DATABASE_VARIABLE}, which no list of processes shows",
    )
    parser.add_argument(
        "--shared-folder",
        type=Path,
        help="folder of checkpoints and journal, for several servers over the same --database, all of which see it",
    )
    parser.add_argument("--server-url", help="where the other servers over the same --database reach this one")
    parser.add_argument(
        "--read-state-dir",
        type=Path,
        action="append",
        default=[],
        help="state folder of another server, whose checkpoints may be loaded too; repeatable",
    )
    parser.add_argument(
        "--peft-folder",
        type=Path,
        action="append",
        default=[],
        help="folder of a PEFT adapter, which may be loaded too; repeatable",
    )
    parser.add_argument(
        "--run",
        type=_named_path,
        action="append",
        default=[],
        help="NAME=tinker://..., weights that OpenAI's clients may ask for by this name; repeatable",
    )
    parser.add_argument("--registry", help="registry whose models OpenAI's clients may ask for; default: none")


def _add_workers(parser: argparse.ArgumentParser) -> None:
    """Base models, and the workers that compute with them."""
    parser.add_argument("--base-model", action="append", help="name, hub id or folder, or NAME=FOLDER; repeatable")
    parser.add_argument(
        "--device",
        default=os.environ.get(DEVICE_VARIABLE) or None,
        help=f"cpu, cuda or cuda:N; default: {DEVICE_VARIABLE}, or cuda where there is one",
    )
    parser.add_argument(
        "--precision",
        default=os.environ.get(PRECISION_VARIABLE) or None,
        help="float32 or bfloat16, of base model and activations; "
        f"default: {PRECISION_VARIABLE}, or bfloat16 where the hardware gains from it",
    )
    parser.add_argument(
        RAY,
        nargs="?",
        const=LOCAL,
        help="run the engine on Ray: HOST:PORT of its head, or auto where this machine is a node; without either it "
        "starts a cluster of this machine",
    )
    parser.add_argument(
        "--worker-cpus", type=_positive, help="of a node of Ray's; default: 1 beside a GPU, or its part"
    )
    parser.add_argument("--worker-gpus", type=_amount, help="of a node of Ray's; default: 1, where there are any")
    parser.add_argument("--worker-memory-bytes", type=_positive, help="of a node of Ray's; default: not reserved")
    parser.add_argument("--max-base-bytes", type=int, help="memory for base models' weights; default: no limit")
    parser.add_argument("--workers", type=int, help="processes that train and sample side by side; default: 1")
    parser.add_argument("--trainers", type=int, help="in place of --workers: processes that only train")
    parser.add_argument("--samplers", type=int, help="beside --trainers: processes that only sample")
    parser.add_argument(
        "--silent-minutes",
        type=float,
        default=Settings().silent_seconds / 60,
        help="drop the samples of a client not heard of for this long; default: %(default)g",
    )
    parser.add_argument(
        "--session-minutes",
        type=float,
        default=Settings().session_seconds / 60,
        help="free the models of a client not heard of for this long; default: %(default)g",
    )
    parser.add_argument(
        "--max-connections", type=_positive, help="at a time; default: what the limit of open files leaves"
    )
    parser.add_argument(
        "--max-address-connections",
        type=_positive,
        help="of one address, at a time, that have not sent a key; default: half of all",
    )
    parser.add_argument(
        "--max-cache-bytes",
        type=_positive,
        default=os.environ.get(CACHE_VARIABLE) or None,
        help=f"memory for each base model's key-value cache; default: {CACHE_VARIABLE}, or by what is free",
    )
    parser.add_argument(
        "--max-snapshot-file-bytes",
        type=_positive,
        default=os.environ.get(SNAPSHOT_VARIABLE) or None,
        help=f"disk for weights of sampling clients that wait in files; default: {SNAPSHOT_VARIABLE}, or 8 GiB",
    )


def _add_rules(parser: argparse.ArgumentParser) -> None:
    """Settings of the server itself."""
    parser.add_argument(
        "--samplers-only",
        action="store_true",
        help="refuse to train: base models then take the memory of their weights once, as sampling reads them",
    )
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="give each request a pass of its own, so that its numbers do not depend on what others ask for",
    )
    parser.add_argument(
        "--journal",
        default=Settings().journal,
        help="where requests are kept until they need not be done again: files in the state folder, a URL, rows of the "
        "database, or off: a lost engine or server then loses its models; default: %(default)s",
    )
    parser.add_argument(
        "--checkpoints",
        help="URL of a blob store where the files of checkpoints are kept; default: the state folder, or the one that "
        "is shared",
    )
    parser.add_argument(
        "--drain-seconds",
        type=float,
        default=Settings().drain_seconds,
        help="at SIGTERM or SIGINT, answer for so long what was accepted; default: %(default)g",
    )
    parser.add_argument(
        "--stable-reinforce",
        choices=["own"],
        default=Settings().stable_reinforce,
        help="own: where the loss stable_reinforce is asked for, train by an objective of this server's; default: "
        "refuse it, since that of the hosted service is not published",
    )
    parser.add_argument("--watch-stdin", action="store_true", help="stop when stdin ends")
    parser.add_argument(
        "--end-sessions",
        choices=get_args(EndSessions),
        action="append",
        default=[],
        help="start: end the sessions that an earlier server left; missing: those of them that need a base model which "
        "is not named here; eof: end all with stdin, whose holder is their only "
        "client; repeatable",
    )
    # Taken out before words are parsed: it is here for the help.
    parser.add_argument(WAIT, action="store_true", help="load, and wait on stdin, a socket, for the other arguments")
    parser.add_argument("--json", action="store_true", help="say the address as JSON, in the first line; notes follow")


def _named_path(text: str) -> tuple[str, str]:
    name, equals, rest = text.partition("=tinker://")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=tinker://...")
    return name, f"tinker://{rest}"


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def _amount(text: str) -> float:
    number = float(text)
    if not 0 <= number < math.inf or (number > 1 and number % 1):
        raise argparse.ArgumentTypeError(f"{text} is neither a part of one nor a whole number")
    return number
