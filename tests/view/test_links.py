"""Every link of every page leads to a page."""

import re
from pathlib import Path
from urllib.parse import urlsplit

from starlette.testclient import TestClient
from tests.view.every_kind import followed, make_place

_KINDS = {
    "the list": r"/",
    "a run": r"/runs/plain/-/",
    "the log": r"/runs/plain/-/log",
    "a step": r"/runs/plain/-/steps/2",
    "what was sampled": r"/runs/of%20a%20group/rl%20%231%2050%25/-/rollouts/2",
    "what was held out": r"/runs/of%20a%20group/rl%20%231%2050%25/-/rollouts/test-3",
    "answers": r"/runs/plain/-/answers",
    "several runs": r"/compare",
    "sweeps": r"/experiments/",
    "a sweep": r"/experiments/rates",
    "a run of a sweep": r"/runs/rates/.+/-/",
    "evaluations": r"/evaluations",
    "two evaluations": r"/evaluations/compare",
    "an item": r"/evaluations/item",
    "notes": r"/evaluations/notes",
    "the playground": r"/playground",
}


def test_every_link_leads_to_a_page(client: TestClient, runs: Path) -> None:
    # Catches a link to what a run has not, such as the answers of one that kept none, and one into a page that lacks
    # the part.
    make_place(runs)
    pages: dict[str, str] = {}
    parts: list[tuple[str, str]] = []
    dead: list[str] = []
    for address, answer, links in followed(client):
        pages[address] = answer.text
        for link in links:
            place = str(answer.url.join(link)).removeprefix(str(client.base_url))
            if "#" in place and not link.startswith("data:"):
                parts.append((address, place))
        if answer.status_code != 200:
            dead.append(f"{answer.status_code} {address}")
    assert dead == []
    paths = {urlsplit(address).path for address in pages}
    assert [kind for kind, form in _KINDS.items() if not any(re.fullmatch(form, path) for path in paths)] == []
    missing = {
        f"{place} of {address}"
        for address, place in parts
        if (to := place.partition("#"))[0] in pages and f'id="{to[2]}"' not in pages[to[0]]
    }
    assert missing == set()


def test_a_point_of_a_held_out_curve_leads_to_what_was_kept(client: TestClient, runs: Path) -> None:
    # Catches a point that leads to answers where only rollouts were kept, or nothing.
    make_place(runs)
    rl = "/runs/of%20a%20group/rl%20%231%2050%25/-/"
    led = {
        f"{run}after?step={step}": client.get(f"{run}after?step={step}", follow_redirects=False).headers["location"]
        for run, step in (("/runs/plain/-/", 3), (rl, 0), (rl, 3), ("/runs/pairs/-/", 3), ("/runs/pairs/-/", 0))
    }
    assert [*led.values()] == [
        "/runs/plain/-/answers?step=3",
        f"{rl}rollouts/test-0",
        f"{rl}answers?step=3",
        "/runs/pairs/-/steps/3",
        "/runs/pairs/-/#evaluation",
    ]


def test_a_run_leads_to_all_that_it_has(client: TestClient, runs: Path) -> None:
    make_place(runs)
    titles = {
        name: [link["title"] for link in client.get(f"/api/runs/{name}/-/").json()["links"]]
        for name in (
            "plain",
            "of a group/rl #1 50%".replace("#", "%23").replace("50%", "50%25"),
            "exam-a",
            "rates",
            "new",
        )
    }
    assert [*titles.values()] == [
        ["answers", "item by item", "notes", "ask it"],
        ["rollouts", "held-out rollouts", "answers", "ask it"],
        ["its evaluation"],
        ["experiment"],
        [],
    ]
