"""`python -m cookhouse.server`: a server in a process of its own."""

import argparse
import contextlib
import json
import logging
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NoReturn

from cookhouse.assets import TINY_MODEL
from cookhouse.engine.transports.ray.workers import RayWorkers
from cookhouse.errors import CookhouseError, InputError
from cookhouse.models.names import parse_served
from cookhouse.registry import open_registry
from cookhouse.server.leases.sharing import sharing_of
from cookhouse.server.main import run_server
from cookhouse.server.pool.children import Children
from cookhouse.server.pool.plans import plans_of
from cookhouse.server.settings import HOSTED_SAMPLES, ServiceOptions, Settings
from cookhouse.server.startup.command_line import KEYS_VARIABLE, RAY, WAIT, make_parser
from cookhouse.server.startup.libraries import hide_torch, loading, wait_for_arguments

_OWN_STABLE_REINFORCE = (
    "the loss stable_reinforce trains by an objective of this server's, which is not that of the hosted service"
)
_KERNELS = "cookhouse.engine.kernels.cpu.build"


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve as the command line says; returns the exit code: 0, 1 for a failure, 2 for unusable input."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with Children() as children:
        waits_for_arguments = WAIT in words
        if waits_for_arguments:
            if RAY not in words:
                children.start()
            loading()
            waited_for = wait_for_arguments(os.environ)
            if waited_for is None:
                return 0
            words = [*(word for word in words if word != WAIT), *waited_for]
        options = make_parser(__doc__).parse_args(words)
        return _serve(options, children, Stdout(as_json=options.json, at_once=waits_for_arguments))


def _serve(options: argparse.Namespace, children: Children, stdout: "Stdout") -> int:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    keys = [key.strip() for key in os.environ.get(KEYS_VARIABLE, "").split(",") if key.strip()]
    new_key = None if keys else f"tml-{secrets.token_urlsafe(24)}"
    base_models = options.base_model or [TINY_MODEL]
    try:
        if options.samplers_only and (options.trainers or options.samplers):
            raise InputError(
                "--samplers-only has no worker train; use it with --workers N, not with --trainers and --samplers"
            )
        sharing = sharing_of(
            folder=options.shared_folder,
            url=options.server_url,
            database=options.database,
            api_keys=keys,
            journal=options.journal,
            samplers_only=options.samplers_only,
            end_sessions=options.end_sessions,
        )
        with _kernels_reported(stdout), _workers(options, children) as workers:
            workers.engine_options = {
                "base_models": list(parse_served(base_models).values()),
                "device": options.device,
                "precision": options.precision,
                "max_base_bytes": options.max_base_bytes,
                "max_cache_bytes": options.max_cache_bytes,
                "samplers_only": options.samplers_only,
            }
            workers.start()
            if options.stable_reinforce:
                stdout.say(_OWN_STABLE_REINFORCE)
            run_server(
                _service_options(options, keys or [str(new_key)], base_models),
                address=(options.host, options.port),
                database=options.database,
                sharing=sharing,
                make_worker=workers,
                plans=plans_of(
                    workers=options.workers,
                    trainers=options.trainers,
                    samplers=options.samplers,
                ),
                watch_stdin=options.watch_stdin,
                on_ready=lambda url, engine: _announce(url, engine, new_key, options, stdout),
                say=stdout.say,
                warn=partial(stdout.say, kind="warning"),
            )
    except KeyboardInterrupt:
        return 130
    except CookhouseError as error:
        return _refused(error)
    return 0


def _service_options(
    options: argparse.Namespace, api_keys: Sequence[str], base_models: Sequence[str]
) -> ServiceOptions:
    settings = Settings(
        silent_seconds=60 * options.silent_minutes,
        session_seconds=60 * options.session_minutes,
        samplers_only=options.samplers_only,
        deterministic=options.deterministic,
        drain_seconds=options.drain_seconds,
        journal=options.journal,
        checkpoints=options.checkpoints,
        stable_reinforce=options.stable_reinforce,
        as_hosted=options.as_hosted,
        max_samplers=options.max_samplers,
        allowed_origins=options.allowed_origins,
        max_connections=options.max_connections,
        max_address_connections=options.max_address_connections,
    )
    max_samples = options.max_samples or (HOSTED_SAMPLES if options.as_hosted else None)
    if max_samples is not None:
        settings = replace(settings, max_queued_samples=max_samples)
    if options.max_answer_body_bytes is not None:
        settings = replace(settings, max_answer_body_bytes=options.max_answer_body_bytes)
    if options.max_snapshot_file_bytes is not None:
        settings = replace(settings, max_snapshot_file_bytes=options.max_snapshot_file_bytes)
    return ServiceOptions(
        api_keys=api_keys,
        state_dir=options.state_dir,
        settings=settings,
        sources=parse_served(base_models),
        started_as=options.started_as,
        read_state_dirs=options.read_state_dir,
        peft_folders=options.peft_folder,
        registry=None if options.registry is None else open_registry(options.registry, os.environ),
        runs=dict(options.run),
        end_sessions=options.end_sessions,
    )


def _workers(
    options: argparse.Namespace, children: Children
) -> "contextlib.AbstractContextManager[Children | RayWorkers]":
    """Make what runs the engine: child processes, or workers on Ray if that is asked for.

    Raises:
        InputError: what workers take of Ray's nodes is said, and Ray is not asked for; or GPUs for a CPU's engine.
    """
    needs = {
        "num_cpus": options.worker_cpus,
        "num_gpus": options.worker_gpus,
        "memory_bytes": options.worker_memory_bytes,
    }
    if options.ray is not None:
        if options.device == "cpu":
            if options.worker_gpus:
                raise InputError(
                    f"--worker-gpus {options.worker_gpus:g} reserves GPUs, and --device cpu computes on none; give one "
                    "of the two"
                )
            needs["num_gpus"] = 0.0
        number = options.workers or (options.trainers or 0) + (options.samplers or 0) or 1
        return RayWorkers(options.ray, **needs, num_workers=number)
    if any(need is not None for need in needs.values()):
        raise InputError(
            "--worker-cpus, --worker-gpus and --worker-memory-bytes say what a worker takes of a node of Ray's; give "
            "--ray as well"
        )
    return contextlib.nullcontext(children)


def _refused(error: CookhouseError) -> int:
    sys.stderr.write(f"error: {error}\n")
    return 2 if isinstance(error, InputError) else 1


@contextlib.contextmanager
def _kernels_reported(stdout: "Stdout") -> Iterator[None]:
    """Say on stdout what the builder of kernels says: a first start takes many seconds longer."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            stdout.say(record.getMessage())

    handler = Handler()
    handler.addFilter(lambda record: record.levelno == logging.INFO)  # warnings stand in the log
    logger = logging.getLogger(_KERNELS)
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class Stdout:
    """Lines on stdout. As JSON the address comes first: earlier lines wait, unless whoever started this process reads
    all of it.
    """

    def __init__(self, *, as_json: bool, at_once: bool) -> None:
        self._as_json = as_json
        self._held: list[str] | None = [] if as_json and not at_once else None

    def say(self, text: str, *, kind: str = "note") -> None:
        line = json.dumps({kind: text}) if self._as_json else text
        if self._held is None:
            _write(line)
        else:
            self._held.append(line)

    def announce(self, text: str) -> None:
        held, self._held = self._held or (), None
        _write("\n".join((text, *held)))


def _write(text: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody is there to hear it
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def _announce(url: str, engine: str, new_key: str | None, options: argparse.Namespace, stdout: Stdout) -> None:
    """Say where the server is, and its key if nobody knows it yet; as JSON also what its engine computes on."""
    if options.json:
        key_if_new = {} if new_key is None else {"api_key": new_key}
        text = json.dumps({"url": url, **key_if_new, "engine": engine})
    else:
        key = f"the one in {KEYS_VARIABLE}" if new_key is None else new_key
        names = {"TINKER_BASE_URL": url, "TINKER_API_KEY": key, "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": key}
        page = f"{url}/page/" if new_key is None else f"{url}/page/#key={new_key}"
        lines = [f"serving at {url}", *(f"  {name}={value}" for name, value in names.items()), f"its page: {page}"]
        text = "\n".join(lines)
    stdout.announce(text)


def exit_with(code: int) -> NoReturn:
    """End at once: the engine's thread may be inside a long pass, which an orderly shutdown of Python would await."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    hide_torch()
    exit_with(main())
