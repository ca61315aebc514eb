"""The live page: how soon the list of hundreds of runs is painted, how soon thousands of rollouts are filtered, what a
hostile transcript does to it, and what ten open pages cost a run.

    python -m bench.view                         all of it; needs chromium
    python -m bench.view --runs 30 --rounds 1    a trial in a minute

Of the run, processor seconds of its processes without and with ten streams of events, in turn, and the median of the
paired differences; the page is served by a process of its own, whose seconds are told beside.
"""

import argparse
import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import httpx
from bench.run_folders import HOSTILE, make_place, make_run, write_hostile, write_rollouts
from playwright.sync_api import sync_playwright

from cookhouse.algorithms.base.process_tree import own_cpu_seconds
from cookhouse.view.access import Access
from cookhouse.view.place import Place
from cookhouse.view.serving import serve

TOKEN: Final = "bench"
_HEADERS: Final = {"Authorization": f"Bearer {TOKEN}"}
_STREAMS: Final = 10
_PAINT: Final = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300, help="in the list")
    parser.add_argument("--megabytes", type=int, default=11, help="of each of them")
    parser.add_argument("--rollouts", type=int, default=10_000, help="of one step")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200, help="of the run that is looked at")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--listen", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.listen is not None:
        listen(options.listen)
    if options.serve is not None:
        serve(Place(options.serve), Access(TOKEN), 0, lambda address: print(address, flush=True))
        return
    with tempfile.TemporaryDirectory(prefix="bench-view-") as name:
        place = Path(name) / "runs"
        make_place(place, options.runs, options.megabytes << 20)
        many = make_run(place / "many", options.runs)
        (many / "rollouts").mkdir()
        write_rollouts(many / "rollouts" / "000000.jsonl", [0.0, 0.25, 0.5, 1.0], num_rollouts=options.rollouts)
        hostile = make_run(place / "hostile", options.runs + 1)
        (hostile / "rollouts").mkdir()
        write_hostile(hostile / "rollouts" / "000000.jsonl", 10 << 20)
        with served(place) as (address, _):
            tell_pages(address, options.runs, options.rollouts, options.rounds)
        tell_cost_of_looking(Path(name) / "looked-at", options.rounds, options.steps)


@contextlib.contextmanager
def served(place: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a server of a place, and its process."""
    command = [sys.executable, "-m", "bench.view", "--serve", str(place)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def tell_pages(address: str, num_runs: int, num_rollouts: int, rounds: int) -> None:
    """Print how soon pages are there, and what the hostile one did."""
    paints = [paint_ms(f"{address}/?token={TOKEN}") for _ in range(rounds + 1)]
    print(f"first paint of {num_runs} runs: {paints[0]:.0f} ms cold, then {statistics.median(paints[1:]):.0f} ms")
    filters = ("min_reward=0.5", "max_reward=0.25", "min_reward=0.25&max_reward=0.5", "text=2+%2B+3")
    step = f"{address}/api/runs/many/-/rollouts/1"
    first = seconds_of(step)
    times = [seconds_of(f"{step}?{each}") for _ in range(rounds) for each in filters]
    told = f"{first * 1e3:.0f} ms the first time, filtered in {statistics.median(times) * 1e3:.0f} ms"
    print(f"{num_rollouts:,} rollouts: {told}, {max(times) * 1e3:.0f} ms at most")
    answer = httpx.get(f"{address}/runs/hostile/-/rollouts/1", headers=_HEADERS, timeout=60)
    assert answer.status_code == 200, answer.text
    assert not any(part in answer.text for part in (HOSTILE, "<script>alert", "<img", "\x1b", "\u202e")), "obeyed"
    print(f"a hostile transcript of 10 MB: a page of {len(answer.content):,} bytes, nothing of it obeyed")


def paint_ms(address: str) -> float:
    """Milliseconds from the request to the first contentful paint, in a browser that has seen nothing."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        raise SystemExit("error: there is no chromium; make chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto(address)
        page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
        found = float(page.evaluate(_PAINT))
        browser.close()
    return found


def seconds_of(address: str) -> float:
    begun = time.perf_counter()
    httpx.get(address, headers=_HEADERS, timeout=60).raise_for_status()
    return time.perf_counter() - begun


def tell_cost_of_looking(place: Path, rounds: int, steps: int) -> None:
    """Print the processor seconds of a run with and without open pages."""
    place.mkdir()
    pairs = []
    with served(place) as (address, server):
        run_seconds(place / "warm", min(steps, 5))
        for number in range(rounds):
            alone = run_seconds(place / f"alone-{number}", steps)
            with watched(address, f"watched-{number}"):
                pairs.append((alone, run_seconds(place / f"watched-{number}", steps)))
        seconds = own_cpu_seconds(server.pid)
    medians = [statistics.median(some) for some in zip(*pairs, strict=True)]
    difference = statistics.median(watched - alone for alone, watched in pairs)
    print(
        f"a run of {steps} steps: {medians[0]:.2f} s of processor time, with {_STREAMS} open pages {medians[1]:.2f} s"
    )
    print(f"paired difference: {difference:+.2f} s, {difference / medians[0]:+.1%}")
    print(f"the page's own process: {seconds:.1f} s in all")


def run_seconds(folder: Path, steps: int) -> float:
    """Processor seconds of a run with all of its processes."""
    settings = [f"log_path={folder}", f"max_steps={steps}", "num_eval=0"]
    before = os.times()
    command = [sys.executable, "-m", "cookhouse", "run", "supervised", *settings]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


@contextlib.contextmanager
def watched(address: str, name: str) -> Iterator[None]:
    """Ten open pages: streams of the list and of the run, as pages hold them."""
    addresses = [f"{address}/events/runs", f"{address}/events/runs/{name}"] * (_STREAMS // 2)
    process = subprocess.Popen([sys.executable, "-m", "bench.view", "--listen", *addresses])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def listen(addresses: Sequence[str]) -> None:
    """Hold streams open until the process is killed."""
    for address in addresses[1:]:
        threading.Thread(target=_listen, args=[address], daemon=True).start()
    _listen(addresses[0])


def _listen(address: str) -> None:
    """One of a run that is not there yet is asked for again, as pages do."""
    while True:
        with contextlib.suppress(httpx.HTTPError), httpx.stream("GET", address, headers=_HEADERS, timeout=60) as answer:
            for _ in answer.iter_bytes():
                pass
        time.sleep(0.5)


if __name__ == "__main__":
    main()
