"""A SandboxFusion server as a sandbox (https://bytedance.github.io/SandboxFusion/docs/api/run-code-run-code-post)."""

import asyncio
import concurrent.futures
import http.client
import json
import time
import urllib.error
import urllib.request
from typing import Any

from cookhouse.errors import InputError, ServiceError
from cookhouse.grading.sandbox.sandbox import Execution, ExecutionOutcome, Program, standalone_source

_ATTEMPTS = 4
_FIRST_PAUSE_SECONDS = 0.5  # doubled after each further failure
_GRACE_SECONDS = 30.0  # beyond a run's own limit: the server may let it wait
_ESCAPED_BYTES = 6  # of one byte in JSON, at most
_OTHER_BYTES = 1 << 16  # of an answer, besides the two streams
_TOO_LONG = Execution(
    outcome=ExecutionOutcome.OUTPUT, status=None, stdout=b"", stderr=b"", seconds=0.0, is_truncated=True
)


class SandboxFusion:
    """Programs run on the server, up to `max_concurrency` at a time; what they are kept from is the server's affair.

    Of `Limits`, time, memory and output hold here. The server ends a cancelled run at its own time limit.
    """

    def __init__(self, url: str, *, max_concurrency: int = 32) -> None:
        if not url.startswith(("http://", "https://")):
            raise InputError(f"the SandboxFusion server is given as {url!r}; it must be an http:// or https:// address")
        self._url = f"{url.rstrip('/')}/run_code"
        self._threads = concurrent.futures.ThreadPoolExecutor(max_concurrency, thread_name_prefix="sandbox-fusion")

    async def run(self, program: Program) -> Execution:
        """Run to the end. Raises ServiceError if the server cannot be reached, or cannot run anything."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, program)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)

    def _run(self, program: Program) -> Execution:
        limits = program.limits
        body = {
            "language": "python",
            "code": standalone_source(program),
            "stdin": program.stdin.decode(errors="surrogateescape"),
            "run_timeout": limits.wall_seconds,
            "memory_limit_MB": limits.memory_bytes >> 20,
        }
        # Two full streams with each byte escaped: what is longer is a program's that printed too much.
        max_bytes = 2 * _ESCAPED_BYTES * limits.output_bytes + _OTHER_BYTES
        answer = self._post(json.dumps(body).encode(), limits.wall_seconds + _GRACE_SECONDS, max_bytes)
        if answer is None:
            return _TOO_LONG
        try:
            result = answer.get("run_result")
            if answer.get("status") == "SandboxError" or not isinstance(result, dict):
                raise ServiceError(f"{self._url} could not run a program: {answer.get('message') or 'no reason given'}")
            return _execution(result, limits.output_bytes)
        except (ValueError, TypeError, AttributeError) as error:
            raise ServiceError(f"{self._url} did not answer as SandboxFusion does: {error!r}") from error

    def _post(self, body: bytes, timeout_seconds: float, max_bytes: int) -> dict[str, Any] | None:
        """The JSON of the answer; None if that is longer than `max_bytes`."""
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})
        for attempt in range(_ATTEMPTS):
            try:
                with urllib.request.urlopen(request, timeout=timeout_seconds) as response:
                    return _json_object(response.read(max_bytes + 1), max_bytes)
            except urllib.error.HTTPError as error:
                error.close()
                failure: Exception = error
                if error.code < 500:
                    break
            except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
                failure = error
            time.sleep(_FIRST_PAUSE_SECONDS * 2**attempt if attempt + 1 < _ATTEMPTS else 0)
        raise ServiceError(f"{self._url} did not answer a program: {failure}") from failure


def _json_object(body: bytes, max_bytes: int) -> dict[str, Any] | None:
    if len(body) > max_bytes:
        return None
    read = json.loads(body)
    if not isinstance(read, dict):
        raise ValueError("the answer is no JSON object")
    return read


def _execution(result: dict[str, Any], output_bytes: int) -> Execution:
    status = result.get("return_code")
    outcome = ExecutionOutcome.OK if status == 0 else ExecutionOutcome.NONZERO_EXIT
    if result.get("status") == "TimeLimitExceeded":
        outcome, status = ExecutionOutcome.TIMEOUT, None
    elif isinstance(status, int) and status < 0:
        outcome = ExecutionOutcome.KILLED
    outputs = [(result.get(name) or "").encode(errors="surrogatepass") for name in ("stdout", "stderr")]
    is_truncated = any(len(output) > output_bytes for output in outputs)
    return Execution(
        outcome=ExecutionOutcome.OUTPUT if is_truncated else outcome,
        status=status,
        stdout=outputs[0][:output_bytes],
        stderr=outputs[1][:output_bytes],
        seconds=float(result.get("execution_time") or 0.0),
        is_truncated=is_truncated,
    )
