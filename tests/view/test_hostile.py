"""Everything that a run holds is hostile, and every page that leads from the list to it is asked for."""

import html
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from bench.run_folders import HOSTILE, make_run, write_hostile
from starlette.testclient import TestClient
from tests.view.evaluated import make_evaluation, make_trained, question_row
from tests.view.sweeps import fail_run, make_sweep

LONG = HOSTILE + "y" * 1_000_000
_MAX_PAGES = 150
_MAX_BYTES = 1 << 20
"""Of a page, whatever a run holds."""
_OBEYED = re.compile(r"<script>alert|<img|[\x00-\x08\x0b\x0c\x0e-\x1f\u202e]")
_PAGES = re.compile("/($|[?]|runs/|experiments/|evaluations|compare)")
_ADDRESS = re.compile(r'(?:href|src)="([^"]*)"')


def test_nothing_that_a_run_holds_is_obeyed(client: TestClient, runs: Path) -> None:
    # Catches a text that any page takes for its own markup, one that is shown whole though it is long, a page that
    # fails, and a link that leads out of the page.
    make_hostile(runs)
    seen, waiting = set[str](), ["/", "/experiments/", "/evaluations", "/evaluations/compare?run=a&run=b"]
    while waiting and len(seen) < _MAX_PAGES:
        address = waiting.pop(0)
        if address in seen or not _PAGES.match(address):
            continue
        seen.add(address)
        answer = client.get(address)
        assert answer.status_code in (200, 404), f"{address}: {answer.text[:2000]}"  # 404: a run that lacks the part
        assert not _OBEYED.search(answer.text), address
        assert len(answer.content) < _MAX_BYTES, f"{address}: {len(answer.content):,} bytes"
        found = [html.unescape(each) for each in _ADDRESS.findall(answer.text)]
        assert not [each for each in found if urlsplit(each).scheme not in ("", "data")], address
        waiting += [urljoin(address, each).partition("#")[0] for each in found]
    assert len(seen) > 20, "the list leads to what there is"


def make_hostile(runs: Path) -> None:
    """Runs of every kind whose texts are hostile, long or both."""
    name = HOSTILE.replace("/", "∕").replace("\x07", "")
    rows = [{"step": step, f"test/{HOSTILE}": 0.5, HOSTILE: 1.0} for step in range(3)]
    trained = make_trained(runs / name, {0: [False, True], 40: [True, True]})
    (trained / "logs.log").write_text(f"2026-01-01 {HOSTILE}\n" * 100)
    rollouts = make_run(runs / "rollouts")
    (rollouts / "rollouts").mkdir()
    write_hostile(rollouts / "rollouts" / "000000.jsonl", 1 << 20)
    (rollouts / "rollouts" / "steps.jsonl").write_text('{"step": 0, "used": [[0, 0]], "left": [], "next_step": 1}\n')
    asked = [question_row(item, LONG, group=HOSTILE, name=HOSTILE) for item in range(2)]
    for number, scores in enumerate(([0.0, 1.0], [1.0, 0.0])):
        make_evaluation(runs / "ab"[number], scores, questions=asked, texts={0: LONG, 1: HOSTILE}, model_name=HOSTILE)
    parts: list[dict[str, Any]] = [{"data": HOSTILE}, {"data": "plain"}, {HOSTILE: 1}]
    names = make_sweep(runs / "sweep", parts, [0.5, 0.6, None])
    fail_run(runs / "sweep", names[2], LONG)
    (runs / "sweep" / names[0] / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
