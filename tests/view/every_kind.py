"""A place with a run of every kind, each with what runs of its kind write; and all that its pages lead to."""

import html
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from httpx2 import Response
from starlette.testclient import TestClient
from tests.runs.kit import make_run
from tests.view.evaluated import make_evaluation, make_trained, write_rows
from tests.view.rl_run import group, keep_answers, keep_example, keep_rollouts, make_rl_run
from tests.view.sweeps import fail_run, make_sweep

STARTS = ("/", "/experiments/", "/evaluations", "/evaluations/compare?run=exam-a&run=exam-b", "/compare", "/playground")
"""What the navigation leads to, and what forms do."""
_ADDRESS = re.compile(r'(?:href|src)="([^"]*)"')
_PAGES = re.compile(r"/($|[?#]|runs/|experiments|evaluations|compare|playground)")


def make_place(runs: Path) -> None:
    """`plain`, `rl` with steps of training and held-out ones, `pairs` with evaluations whose answers were not kept,
    the evaluations `exam-a` and `exam-b`, the sweep `rates`, and `new` that has only begun; with names as people
    choose them.
    """
    plain = make_trained(runs / "plain", {0: [False, True, False], 3: [True, False, False]})
    rows = [{"step": step, "train/nll": 3.0 - step, "test/nll": 3.0} for step in range(3)]
    evaluated = [{"step": 0, "test/exact_match": 1 / 3}, *rows, {"step": 3, "test/exact_match": 1 / 3}]
    write_rows(plain / "metrics.jsonl", evaluated)
    (plain / "logs.log").write_text("a line\n" * 20_000)
    _note(plain, 3)
    for step in range(3):
        keep_example(plain, step, "Human: Is it 5?\nAI: No.")
    _save(plain, 3)
    rl = make_rl_run(runs / "of a group" / "rl #1 50%", saved=["tinker://a/b"])
    keep_rollouts(rl, 0, [group("What is 1 + 1?", {" 2": 1.0, " 3": 0.0})], is_test=True)
    keep_rollouts(rl, 3, [group("What is 1 + 1?", {" 2": 1.0, " 4": 0.0})], is_test=True)
    keep_answers(rl, 3, {"What is 1 + 1?": ("2", True)})
    held_out = [{"step": step, "test/env/all/correct": 0.5} for step in (0, 2, 3)]
    write_rows(rl / "metrics.jsonl", [*_rows(rl), *held_out])
    pairs = [{"step": step, "train/nll": 1.0, "test/accuracy": 0.5, "test/nll": 1.0} for step in range(3)]
    _save(make_run(runs / "pairs", recipe="dpo", rows=[*pairs, {"step": 3, "test/accuracy": 0.75}], number=2), 2)
    for number, scores in enumerate(([0.0, 1.0, 1.0], [1.0, 0.0, 1.0])):
        make_evaluation(runs / f"exam-{'ab'[number]}", scores, number=3 + number)
    parts = [{"learning_rate": rate, "lora_rank": rank} for rate in (1e-4, 3e-4) for rank in (8, 32)]
    names = make_sweep(runs / "rates", parts, [0.4, 0.5, 0.7, None])
    fail_run(runs / "rates", names[3], "the service is gone")
    make_run(runs / "new", status="running", number=9)


def followed(
    client: TestClient, starts: Sequence[str] = STARTS, *, max_pages: int = 2000
) -> Iterator[tuple[str, Response, list[str]]]:
    """Each page that is reached by links, once: its address, the answer, and the addresses in it."""
    seen, waiting = set[str](), [*starts]
    while waiting and len(seen) < max_pages:
        address = waiting.pop(0)
        if address in seen:
            continue
        seen.add(address)
        answer = client.get(address)
        found = [html.unescape(each) for each in _ADDRESS.findall(answer.text)]
        yield address, answer, found
        path = str(answer.url).removeprefix(str(client.base_url))
        waiting += [
            urljoin(path, each).partition("#")[0] for each in found if _PAGES.match(urlsplit(urljoin(path, each)).path)
        ]


def _rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def _save(run: Path, step: int) -> None:
    """A checkpoint after so many steps."""
    point = {"name": f"{step:06d}", "epoch": 0, "batch": step, "step": step, "final": True}
    write_rows(run / "checkpoints.jsonl", [{**point, "state_path": "tinker://s", "sampler_path": "tinker://w"}])


def _note(run: Path, step: int) -> None:
    (run / "evaluations").mkdir()
    record = {"evaluator": "mine", "step": step, "entries": [{"note": "said"}]}
    (run / "evaluations" / f"{step:06d}-0.json").write_text(json.dumps(record))
