"""What every page has in common: errors in words, names that are looked up, texts that are not obeyed."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page
from starlette.testclient import TestClient
from tests.runs.kit import make_run

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e\"'&"


def test_what_is_not_there_is_said_in_words(client: TestClient) -> None:
    # Catches an error that is a bare number, or that leads nowhere.
    page = client.get("/nowhere")
    assert page.status_code == 404
    assert "there is no GET /nowhere here" in page.text
    assert '<a href="/">all runs</a>' in page.text
    answer = client.get("/api/nowhere")
    assert (answer.status_code, answer.json()) == (404, {"detail": "there is no GET /api/nowhere here"})
    assert client.post("/").status_code == 405


def test_a_fault_is_an_answer_too(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches an error page that itself fails, or that shows what went wrong inside.
    monkeypatch.setattr("cookhouse.view.place.find_runs", lambda *_: 1 // 0)
    quiet = TestClient(
        client.app, base_url=str(client.base_url), headers={**client.headers}, raise_server_exceptions=False
    )
    answer = quiet.get("/")
    assert answer.status_code == 500
    assert "ZeroDivisionError" not in answer.text
    assert "the terminal shows why" in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["../access.py", "%2e%2e/access.py", "..%2faccess.py", "%2fetc/passwd"])
def test_static_files_are_ours_alone(client: TestClient, path: str) -> None:
    # Catches a folder that is served with what lies beside it.
    assert client.get(f"/static/{path}").status_code == 404


def test_a_run_with_a_hostile_name_is_harmless(client: TestClient, runs: Path) -> None:
    # Catches a text that a page takes for its own markup: in a cell, and in an address.
    name = HOSTILE.replace("/", "∕")
    make_run(runs / name, recipe=HOSTILE, model_name=HOSTILE)
    page = client.get("/").text
    assert not re.search(r"<script(?! type=\"module\" src=\"/static/)", page)
    assert "\x1b" not in page
    assert r"\x1b[31m\u202e" in page
    (link,) = re.findall(r'href="(/runs/[^"]*)"', page)
    assert re.fullmatch(r"/runs/[\w.~%/-]*/-/", link)


def test_no_page_asks_for_what_is_elsewhere(client: TestClient) -> None:
    # Catches a style, a font or a script from the network, and any that stands in the page.
    page = client.get("/").text
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)
    assert "style=" not in page
    assert not re.search(r"\son\w+=", page)


def test_it_opens_in_a_browser(show: Callable[..., Page], runs: Path) -> None:
    # Catches a policy that refuses our own files, and a token that stays where people copy addresses.
    make_run(runs / "one")
    page = show("/", width=420, scheme="dark")
    assert page.get_by_role("link", name="one").is_visible()
    assert page.evaluate("location.search") == ""
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 20, 18)"
    page.reload()
    assert page.get_by_role("link", name="one").is_visible(), "the cookie goes on"


def test_it_is_light() -> None:
    # Catches a page that takes seconds to start and hundreds of megabytes beside a run: the SDK, torch, the tokenizers.
    heavy = "{'tinker', 'torch', 'transformers', 'numpy', 'fastapi'}"
    code = f"import sys, cookhouse.view.serving; print(sorted({heavy} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
