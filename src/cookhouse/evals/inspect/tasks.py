"""Tasks of Inspect AI by name: found before anything is asked, run with a model, and gone on with where one stopped."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inspect_ai import eval_async, eval_retry_async
from inspect_ai.log import EvalLog, read_eval_log, read_eval_log_async
from inspect_ai.model import GenerateConfig, ModelAPI

from cookhouse.envs import evenly_spaced
from cookhouse.errors import CookhouseError, InputError
from cookhouse.evals.inspect import task_spec
from cookhouse.evals.inspect.logs import read_result, result_name
from cookhouse.evals.inspect.opening import opened, opened_model
from cookhouse.evals.inspect.records import InspectResult, InspectTask
from cookhouse.evals.inspect.running import inspect_turn

_SETTINGS = "cookhouse"
"""Of a log's metadata."""


@dataclass(frozen=True, kw_only=True)
class InspectOptions:
    """Options with which tasks are asked. Those that are None are left to the task."""

    seed: int = 0
    epochs: int | None = None
    temperature: float | None = None
    """Where the task says none either: 0 (greedy) if a sample is asked once, else 1."""
    max_tokens: int | None = None
    system_prompt: str | None = None
    max_concurrent: int = 64


async def find_tasks(specs: Sequence[str], limit: int | None, epochs: int | None = None) -> list[InspectTask]:
    """The tasks that are named as for `inspect eval`: `file.py` for all of a file, `file.py@task`, or `package/task`.
    Of each, all samples or `limit` that are evenly spaced among them.

    Raises:
        InputError: there is no such task, its file cannot be imported, or two tasks have one name.
    """
    found = [task for spec in specs for task in await _found(task_spec(spec), limit, epochs)]
    names = [task.name for task in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"{', '.join(twice)} is named twice; name it once")
    return found


async def _found(spec: str, limit: int | None, epochs: int | None) -> list[InspectTask]:
    with tempfile.TemporaryDirectory(prefix="cookhouse-") as folder:
        async with inspect_turn():
            with _task_errors(spec):
                logs = await eval_async(
                    spec, model=None, log_dir=folder, epochs=epochs, run_samples=False, score=False, ctl_server=False
                )
    return [_task(log, limit) for log in logs]


def _task(log: EvalLog, limit: int | None) -> InspectTask:
    spec = log.eval
    name = spec.task_registry_name or spec.task
    ids = list(spec.dataset.sample_ids or ())
    if not ids:
        raise InputError(f"the Inspect task {name} has no samples")
    return InspectTask(
        name=result_name(spec.task),
        spec=f"{spec.task_file}@{name}" if spec.task_file else name,
        all_ids=ids,
        asked_ids=ids if limit is None else [ids[place] for place in evenly_spaced(range(len(ids)), limit)],
        epochs=spec.config.epochs or 1,
    )


async def run_task(
    task: InspectTask,
    api: ModelAPI,
    options: InspectOptions,
    folder: Path,
    *,
    on_sample: Callable[[], None] = lambda: None,
    stopped: Callable[[], Awaitable[object]] | None = None,
) -> InspectResult | None:
    """Ask a task of a model, with its log in `folder`. What a log there has for the same settings is not asked again:
    all of it if the task was finished, else the samples that were. Once `stopped` returns, what is being asked is
    dropped, and None is the result; what was finished is in the log.

    Raises:
        InputError: the task cannot be loaded.
        ServiceError: the task failed; with its own error.
    """
    settings = _settings(task, api, options)
    path, log = await asyncio.to_thread(_last_log, folder, settings)
    if path is None or log is None or log.status != "success":
        async with inspect_turn(on_sample):
            with opened(api), _task_errors(task.spec):
                work = _run(task, api.model_name, options, folder, settings) if path is None else _retry(path, folder)
                logs = await _until(work, stopped)
        if not logs:
            return None
        path = Path(logs[0].location)
    return await asyncio.to_thread(read_result, path, task.all_ids)


async def _run(
    task: InspectTask, name: str, options: InspectOptions, folder: Path, settings: Mapping[str, Any]
) -> list[EvalLog]:
    given = {
        "temperature": options.temperature,
        "max_tokens": options.max_tokens,
        "system_message": options.system_prompt,
    }
    logs = await eval_async(
        task.spec,
        model=opened_model(name, GenerateConfig(temperature=0.0 if task.epochs == 1 else 1.0)),
        log_dir=str(folder),
        log_format="eval",
        sample_id=list(task.asked_ids) if len(task.asked_ids) < len(task.all_ids) else None,
        epochs=options.epochs,
        metadata={_SETTINGS: settings},
        ctl_server=False,
        seed=options.seed,
        max_connections=options.max_concurrent,
        **{key: value for key, value in given.items() if value is not None},
    )
    return list(logs)


async def _retry(path: Path, folder: Path) -> list[EvalLog]:
    log = await read_eval_log_async(path)
    return list(await eval_retry_async(log, log_dir=str(folder), ctl_server=False))


async def _until(
    work: Coroutine[Any, Any, list[EvalLog]], stopped: Callable[[], Awaitable[object]] | None
) -> list[EvalLog]:
    """Logs of the work; none if it was stopped before."""
    job = asyncio.ensure_future(work)
    stop = asyncio.ensure_future(stopped()) if stopped is not None else asyncio.get_running_loop().create_future()
    try:
        await asyncio.wait({job, stop}, return_when=asyncio.FIRST_COMPLETED)
        return job.result() if job.done() else []
    finally:
        stop.cancel()
        job.cancel()
        with suppress(asyncio.CancelledError):
            await job


def _settings(task: InspectTask, api: ModelAPI, options: InspectOptions) -> dict[str, Any]:
    """All that decides what is asked."""
    return {
        "task": task.spec,
        "samples": list(task.asked_ids),
        "epochs": task.epochs,
        "model": api.model_name,
        "seed": options.seed,
        "temperature": options.temperature,
        "max_tokens": options.max_tokens,
        "system_prompt": options.system_prompt,
    }


def _last_log(folder: Path, settings: Mapping[str, Any]) -> tuple[Path | None, EvalLog | None]:
    """The newest log with these settings, without its samples; one that is finished before any other."""
    logs = [(path, log) for path, log in _logs(folder) if (log.eval.metadata or {}).get(_SETTINGS) == settings]
    newest = logs[0] if logs else (None, None)
    return next(((path, log) for path, log in logs if log.status == "success"), newest)


def finished_result(folder: Path, task: InspectTask) -> InspectResult | None:
    """The newest result of a task in a folder of logs; None if there is none."""
    for path, log in _logs(folder):
        if log.status == "success" and result_name(log.eval.task) == task.name:
            return read_result(path, task.all_ids)
    return None


def _logs(folder: Path) -> Iterator[tuple[Path, EvalLog]]:
    """Newest first, without their samples."""
    for path in sorted(folder.glob("*.eval"), key=lambda path: path.stat().st_mtime_ns, reverse=True):
        yield path, read_eval_log(path, header_only=True)


@contextmanager
def _task_errors(spec: str) -> Iterator[None]:
    try:
        yield
    except CookhouseError:
        raise
    except Exception as error:  # of the task's code, or of Inspect AI, which names what it lacks
        reason = str(error).removeprefix("Error: ").rstrip(".") or type(error).__name__
        raise InputError(
            f"the Inspect task {spec!r} cannot be run: {reason}; name it as for inspect eval: file.py, file.py@task or "
            "package/task"
        ) from error
