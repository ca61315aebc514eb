"""Answers over OpenAI's protocol: cookhouse's endpoint against `transformers serve` and llama.cpp's server.

1, 8 and 32 clients, each with one question after another, greedy and streamed, against servers in processes of their
own, which take turns. Tokens are those of the answers' texts, by the model's tokenizer, so that nobody's own count is
trusted; the time to the first token is each answer's, and the median is shown.

    python -m bench.endpoint --peers transformers           # SmolLM2-135M in fp32
    python -m bench.endpoint --peers transformers-continuous
    python -m bench.endpoint --peers llama --llama PYTHON --gguf FILE --precision bfloat16

`--llama` names a Python that has `llama-cpp-python[server]`, `--gguf` a file of the same model, of whatever precision:
it is written anew in that of the comparison. On a CPU the cache and the passes of `transformers`' continuous batching
get the sizes of the load: those that it chooses there are several times slower.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from bench.harness import parse_options, save_record, serving

_CLIENTS = (1, 8, 32)
_PEERS = ("transformers", "transformers-continuous", "llama")
_READY_SECONDS = 300.0
_QUESTIONS = (
    "What is the capital of {}?",
    "Write a short poem about {}.",
    "Name three things that one can do in {}.",
    "Tell me a story that begins in {}.",
)
_PLACES = ("France", "Peru", "Japan", "Kenya", "Norway", "Chile", "India", "Canada")


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is asked of a server."""

    url: str
    key: str
    model: str
    tokenizer: str
    num_clients: int
    num_each: int
    max_tokens: int


def measure(load: Load) -> tuple[float, float]:
    """Tokens per second of all clients together, and the median time to a first token in seconds."""
    from cookhouse.models.tokenizers import get_tokenizer

    tokenizer = get_tokenizer(load.tokenizer)
    seconds, answers = asyncio.run(_ask_all(load))
    num_tokens = sum(len(tokenizer(text, add_special_tokens=False).input_ids) for text, _ in answers)
    return num_tokens / seconds, statistics.median(first for _, first in answers)


async def _ask_all(load: Load) -> tuple[float, list[tuple[str, float]]]:
    questions = [form.format(place) for place in _PLACES for form in _QUESTIONS]
    limits = httpx.Limits(max_connections=load.num_clients)
    async with httpx.AsyncClient(timeout=600, limits=limits, headers={"Authorization": f"Bearer {load.key}"}) as client:

        async def ask_some(first: int) -> list[tuple[str, float]]:
            asked = [questions[(first + 5 * turn) % len(questions)] for turn in range(load.num_each)]
            return [await _ask(client, load, question) for question in asked]

        start = time.perf_counter()
        answers = await asyncio.gather(*(ask_some(first) for first in range(load.num_clients)))
        return time.perf_counter() - start, [one for some in answers for one in some]


async def _ask(client: httpx.AsyncClient, load: Load, question: str) -> tuple[str, float]:
    """The text of an answer, and the seconds to its first piece."""
    body = {
        "model": load.model,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": load.max_tokens,
        "temperature": 0,
        "stream": True,
    }
    text, first, start = "", 0.0, time.perf_counter()
    async with client.stream("POST", f"{load.url}/v1/chat/completions", json=body) as answer:
        if answer.status_code != 200:
            raise RuntimeError(f"{load.url} answers {answer.status_code}: {(await answer.aread()).decode()}")
        async for line in answer.aiter_lines():
            content = line.removeprefix("data: ")
            if not line.startswith("data: ") or content == "[DONE]":
                continue
            choices = json.loads(content)["choices"]
            if piece := choices[0]["delta"].get("content") if choices else None:
                first = first or time.perf_counter() - start
                text += piece
    return text, first


@contextlib.contextmanager
def _running(command: Sequence[str], port: int, path: str, env: dict[str, str] | None = None) -> Iterator[str]:
    """A server's address, once it answers at `path`."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | (env or {}))
        url = f"http://127.0.0.1:{port}"
        try:
            deadline = time.monotonic() + _READY_SECONDS
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if httpx.get(url + path, timeout=5).status_code == 200:
                        break
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise RuntimeError(f"{command[0]} did not start: {log.read().decode(errors='replace')[-2000:]}")
                time.sleep(0.5)
            yield url
        finally:
            process.terminate()
            process.wait(30)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _cookhouse(options: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    arguments = ["--base-model", f"measured={options.model}", "--precision", options.precision]
    with serving(options.device, *arguments) as server:
        yield server.url, server.api_key, "measured"


@contextlib.contextmanager
def _transformers(options: argparse.Namespace, *flags: str) -> Iterator[tuple[str, str, str]]:
    port = _free_port()
    program = str(Path(sys.executable).with_name("transformers"))
    settings = ["--device", options.device, "--dtype", options.precision, "--port", str(port), *flags]
    with _running([program, "serve", options.model, *settings], port, "/health") as url:
        yield url, "none", options.model


def _continuous(options: argparse.Namespace) -> contextlib.AbstractContextManager[tuple[str, str, str]]:
    sizes = ["--cb-num-blocks", str(2 * max(options.clients)), "--cb-max-batch-tokens", "512"]
    return _transformers(options, "--continuous-batching", *(sizes if options.device == "cpu" else ()))


@contextlib.contextmanager
def _llama(options: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        script = str(Path(__file__).with_name("llama_server.py"))
        threads = str(len(os.sched_getaffinity(0)))
        command = [options.llama, script, options.gguf, f"{folder}/model.gguf", options.precision, str(port), threads]
        with _running(command, port, "/v1/models") as url:
            yield url, "none", "measured"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder of a chat model; default: SmolLM2-135M-Instruct")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument(
        "--answers", type=int, default=16, help="of all clients together in a round; each asks for one at least"
    )
    parser.add_argument("--rounds", type=int, default=3, help="in which the sides take turns; medians are shown")
    parser.add_argument("--clients", type=int, nargs="+", default=_CLIENTS)
    parser.add_argument("--peers", nargs="*", choices=_PEERS, default=[_PEERS[0]], help="default: %(default)s")
    parser.add_argument("--llama", metavar="PYTHON", help="a Python that has llama-cpp-python[server]")
    parser.add_argument("--gguf", metavar="FILE", help="the model for it")
    options = parse_options(parser)
    if "llama" in options.peers and not (options.llama and options.gguf):
        parser.error("the peer llama takes --llama PYTHON and --gguf FILE")
    if options.model is None:
        from scripts.get_smollm2 import default_folder, get_smollm2

        get_smollm2(default_folder())
        options.model = str(default_folder())
    starts: dict[str, Any] = {"transformers": _transformers, "transformers-continuous": _continuous, "llama": _llama}
    sides: dict[str, Any] = {"cookhouse": _cookhouse(options)}
    sides |= {peer: starts[peer](options) for peer in options.peers}
    taken: dict[tuple[str, int], list[tuple[float, float]]] = {}
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(side) for name, side in sides.items()}
        turns = itertools.product(range(options.rounds), options.clients, servers.items())
        for _, num_clients, (name, (url, key, model)) in turns:
            settings = {"url": url, "key": key, "model": model, "tokenizer": options.model}
            if (name, options.clients[0]) not in taken:  # what is loaded and compiled at first use
                measure(Load(**settings, num_clients=1, num_each=2, max_tokens=8))
            num_each = max(options.answers // num_clients, 1)
            load = Load(**settings, num_clients=num_clients, num_each=num_each, max_tokens=options.max_tokens)
            taken.setdefault((name, num_clients), []).append(measure(load))
    figures: dict[str, float] = {}
    for (name, num_clients), pairs in taken.items():
        rate, first = (statistics.median(some) for some in zip(*pairs, strict=True))
        figures |= {f"{name} tokens/s, {num_clients}": rate, f"{name} first s, {num_clients}": first}
        ratio = figures[f"cookhouse tokens/s, {num_clients}"] / rate
        times = "" if name == "cookhouse" else f"; cookhouse {ratio:.1f} ×"
        print(f"{name:24} {num_clients:3} clients {rate:8.1f} tokens/s, first after {first * 1000:6.0f} ms{times}")
    if options.save:
        shown = {key: value for key, value in vars(options).items() if key not in ("save", "llama", "gguf", "model")}
        save_record("-".join(["endpoint", Path(options.model).name, options.precision, *options.peers]), shown, figures)


if __name__ == "__main__":
    main()
