"""Command line of `python -m cookhouse.server`: a table of its options, and the parser made of it."""

import argparse
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from cookhouse.engine.transports.ray.addresses import LOCAL
from cookhouse.server.settings import EndSessions, Settings

KEYS_VARIABLE = "COOKHOUSE_API_KEYS"
DATABASE_VARIABLE = "COOKHOUSE_DATABASE"
DEVICE_VARIABLE = "COOKHOUSE_DEVICE"
PRECISION_VARIABLE = "COOKHOUSE_PRECISION"
CACHE_VARIABLE = "COOKHOUSE_MAX_CACHE_BYTES"
SNAPSHOT_VARIABLE = "COOKHOUSE_MAX_SNAPSHOT_FILE_BYTES"
_ORIGIN = re.compile(r"https?://[^/\s,]+")
WAIT = "--wait"
RAY = "--ray"


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Reads the environment for the defaults that come from there."""
    parser = argparse.ArgumentParser(prog="python -m cookhouse.server", description=description, allow_abbrev=False)
    for option in _OPTIONS:
        default: dict[str, Any] = (
            {} if option.variable is None else {"default": os.environ.get(option.variable) or None}
        )
        parser.add_argument(option.name, **default, **option.more, help=option.help)
    return parser


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


def _origins(text: str) -> tuple[str, ...]:
    origins = tuple(origin.strip() for origin in text.split(","))
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise argparse.ArgumentTypeError(f"{origin!r} is no origin: give https://HOST or http://HOST:PORT, or *")
    return origins


def _amount(text: str) -> float:
    number = float(text)
    if not 0 <= number < math.inf or (number > 1 and number % 1):
        raise argparse.ArgumentTypeError(f"{text} is neither a part of one nor a whole number")
    return number


_MANY: Mapping[str, Any] = {"action": "append", "default": []}
_SWITCH: Mapping[str, Any] = {"action": "store_true"}
_PATH: Mapping[str, Any] = {"type": Path}
_NUMBER: Mapping[str, Any] = {"type": int}
_COUNT: Mapping[str, Any] = {"type": _positive}
_ORIGINS: Mapping[str, Any] = {"type": _origins, "default": ()}
_DEFAULTS = Settings()


def _float(default: float) -> Mapping[str, Any]:
    return {"type": float, "default": default}


@dataclass(frozen=True, slots=True)
class _Option:
    name: str
    help: str
    more: Mapping[str, Any] = field(default_factory=dict)
    """As argparse takes it."""
    variable: str | None = None
    """The environment variable that holds the default."""


_OPTIONS = (
    _Option("--host", "address to listen on", {"default": "127.0.0.1"}),
    _Option("--port", "port to listen on; 0 takes a free one", {"type": int, "default": 0}),
    _Option("--state-dir", "folder of checkpoints and database", {"type": Path, "required": True}),
    _Option(
        "--database",
        "postgresql://USER:PASSWORD@HOST/NAME, in place of the database in the state folder; "
        f"default: {DATABASE_VARIABLE}, which no list of processes shows",
        variable=DATABASE_VARIABLE,
    ),
    _Option(
        "--shared-folder",
        "folder of checkpoints and journal, for several servers over the same --database, all of which see it",
        _PATH,
    ),
    _Option("--server-url", "where the other servers over the same --database reach this one"),
    _Option(
        "--read-state-dir",
        "state folder of another server, whose checkpoints may be loaded too; repeatable",
        {**_PATH, **_MANY},
    ),
    _Option("--peft-folder", "folder of a PEFT adapter, which may be loaded too; repeatable", {**_PATH, **_MANY}),
    _Option(
        "--run",
        "NAME=tinker://..., weights that OpenAI's clients may ask for by this name; repeatable",
        {"type": _named_path, **_MANY},
    ),
    _Option("--registry", "registry whose models OpenAI's clients may ask for; default: none"),
    _Option("--base-model", "name, hub id or folder, or NAME=FOLDER; repeatable", {"action": "append"}),
    _Option(
        "--started-as",
        "words behind `cookhouse serve` that started it, which the refusal of a base model repeats",
        {"default": ""},
    ),
    _Option(
        "--device",
        f"cpu, cuda or cuda:N; default: {DEVICE_VARIABLE}, or cuda where there is one",
        variable=DEVICE_VARIABLE,
    ),
    _Option(
        "--precision",
        "float32 or bfloat16, of base model and activations; "
        f"default: {PRECISION_VARIABLE}, or bfloat16 where the hardware gains from it",
        variable=PRECISION_VARIABLE,
    ),
    _Option(
        RAY,
        "run the engine on Ray: HOST:PORT of its head, or auto where this machine is a node; without either it "
        "starts a cluster of this machine",
        {"nargs": "?", "const": LOCAL},
    ),
    _Option("--worker-cpus", "of a node of Ray's; default: 1 beside a GPU, or its part", _COUNT),
    _Option("--worker-gpus", "of a node of Ray's; default: 1, where there are any", {"type": _amount}),
    _Option("--worker-memory-bytes", "of a node of Ray's; default: not reserved", _COUNT),
    _Option("--max-base-bytes", "memory for base models' weights; default: no limit", _NUMBER),
    _Option("--workers", "processes that train and sample side by side; default: 1", _NUMBER),
    _Option("--trainers", "in place of --workers: processes that only train", _NUMBER),
    _Option("--samplers", "beside --trainers: processes that only sample", _NUMBER),
    _Option(
        "--silent-minutes",
        "drop the samples of a client not heard of for this long; default: %(default)g",
        _float(_DEFAULTS.silent_seconds / 60),
    ),
    _Option(
        "--session-minutes",
        "free the models of a client not heard of for this long; default: %(default)g",
        _float(_DEFAULTS.session_seconds / 60),
    ),
    _Option("--max-connections", "at a time; default: what the limit of open files leaves", _COUNT),
    _Option(
        "--max-answer-body-bytes",
        f"of a request of OpenAI's or Anthropic's clients; default: {_DEFAULTS.max_answer_body_bytes}",
        _COUNT,
    ),
    _Option(
        "--allowed-origins",
        "of pages that may ask the endpoint of these clients by a browser, comma-separated; *: any; default: none",
        _ORIGINS,
    ),
    _Option(
        "--max-address-connections",
        "of one address, at a time, that have not sent a key; default: half of all",
        _COUNT,
    ),
    _Option(
        "--max-cache-bytes",
        f"memory for each base model's key-value cache; default: {CACHE_VARIABLE}, or by what is free",
        _COUNT,
        CACHE_VARIABLE,
    ),
    _Option(
        "--max-snapshot-file-bytes",
        f"disk for weights of sampling clients that wait in files; default: {SNAPSHOT_VARIABLE}, or 8 GiB",
        _COUNT,
        SNAPSHOT_VARIABLE,
    ),
    _Option(
        "--samplers-only",
        "refuse to train: base models then take the memory of their weights once, as sampling reads them",
        _SWITCH,
    ),
    _Option(
        "--deterministic",
        "give each request a pass of its own, so that its numbers do not depend on what others ask for",
        _SWITCH,
    ),
    _Option(
        "--journal",
        "where requests are kept until they need not be done again: files in the state folder, a URL, rows of the "
        "database, or off: a lost engine or server then loses its models; default: %(default)s",
        {"default": _DEFAULTS.journal},
    ),
    _Option(
        "--checkpoints",
        "URL of a blob store where the files of checkpoints are kept; default: the state folder, or the one that "
        "is shared",
    ),
    _Option(
        "--drain-seconds",
        "at SIGTERM or SIGINT, answer for so long what was accepted; default: %(default)g",
        _float(_DEFAULTS.drain_seconds),
    ),
    _Option(
        "--stable-reinforce",
        "own: where the loss stable_reinforce is asked for, train by an objective of this server's; default: "
        "refuse it, since that of the hosted service is not published",
        {"choices": ["own"], "default": _DEFAULTS.stable_reinforce},
    ),
    _Option("--as-hosted", "refuse what the hosted service refuses, in its words and with its codes", _SWITCH),
    _Option("--max-samples", "sampling requests of a key at a time; default: 8192, and 2000 --as-hosted", _COUNT),
    _Option("--max-samplers", "weights that a key samples from at a time; others wait; default: any number", _COUNT),
    _Option("--watch-stdin", "stop when stdin ends", _SWITCH),
    _Option(
        "--end-sessions",
        "start: end the sessions that an earlier server left; missing: those of them that need a base model which "
        "is not named here; eof: end all with stdin, whose holder is their only "
        "client; repeatable",
        {"choices": get_args(EndSessions), **_MANY},
    ),
    # Taken out before words are parsed: it is here for the help alone.
    _Option(WAIT, "load, and wait on stdin, a socket, for the other arguments", _SWITCH),
    _Option("--json", "say the address as JSON, in the first line; notes follow", _SWITCH),
)
