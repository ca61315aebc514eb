"""The page as an operator opens it, in a browser."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect
from tests.browser import browser, wider_than_window, window
from tests.server.endpoint.scripted import ScriptedEngine
from tests.server.hosting import KEY, OTHER_KEY, Host, hosted
from tests.server.status.test_status import HOSTILE, NEW_SESSION
from tests.server.test_routes import Server
from tests.waiting import PATIENCE_SECONDS

from cookhouse.assets import TINY_MODEL
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.server.pool.plans import plans_of

ANSWER = "<img src=x onerror=alert(1)> & <script>document.title='owned'</script> done"


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    with browser() as one:
        yield one


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    tokens = get_tokenizer(TINY_MODEL).encode(ANSWER, add_special_tokens=False)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cookhouse.server.requests.completions.formats.default_renderer", lambda *_, **__: "qwen3")
        with hosted(tmp_path_factory.mktemp("state"), lambda: ScriptedEngine([tokens] * 10)) as host:
            for key in (KEY, OTHER_KEY):
                server = Server(host, host.service, key)  # type: ignore[arg-type]
                server.post("/create_session", **NEW_SESSION, display_name=f"{HOSTILE} of {key[-4:]}")
                server.close()
            yield host


@contextmanager
def quiet(browser: Browser, address: str) -> Iterator[Page]:
    """A window in which requests may fail, which browsers write into the console. An error of a script fails."""
    errors: list[str] = []
    context = browser.new_context()
    context.set_default_timeout(1000 * PATIENCE_SECONDS)
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address)
    try:
        yield page
    finally:
        context.close()
    assert errors == []


def address(host: Host, key: str = KEY) -> str:
    return f"{host.url}/page/#key={key}"


def shown(page: Page) -> None:
    """Wait until the page has figures."""
    expect(page.locator("#state")).to_contain_text("Serving")


def test_a_key_is_asked_for_and_a_wrong_one_is_refused(started: Browser, host: Host) -> None:
    """Would catch a page that shows figures without a key, and one that says nothing of a wrong one."""
    with quiet(started, f"{host.url}/page/") as page:
        expect(page.locator("#key")).to_be_focused()
        assert page.locator("#status").is_hidden()
        for wrong, reason in (("tml-wrong", "does not accept"), ("tml-ключ", "no key")):
            page.keyboard.type(wrong)
            page.keyboard.press("Enter")
            expect(page.locator("#refusal")).to_contain_text(reason)
            expect(page.locator("#key")).to_be_focused()
        page.keyboard.type(KEY)
        page.keyboard.press("Enter")
        shown(page)
        assert page.locator("#ask").is_hidden()


def test_a_key_in_the_address_is_taken_out_of_it(started: Browser, host: Host) -> None:
    """Would catch a key that stays in the address bar, in the history or on the disk."""
    with window(started, address(host)) as page:
        shown(page)
        assert page.url == f"{host.url}/page/"
        held: dict[str, Any] = page.evaluate(
            "({local: {...localStorage}, session: {...sessionStorage}, cookie: document.cookie})"
        )
        assert held == {"local": {}, "session": {"cookhouse-key": KEY}, "cookie": ""}
        assert KEY not in page.content()


def test_after_the_key_is_forgotten_nothing_is_left(started: Browser, host: Host) -> None:
    """Would catch figures of one key that the next person at the screen finds in the page."""
    with window(started, address(host)) as page:
        shown(page)
        expect(page.locator("#session-rows td").first).to_be_attached()
        page.locator("#forget").press("Enter")
        expect(page.locator("#key")).to_be_focused()
        assert page.locator("#status td, #tiles div, #weights option").count() == 0
        assert page.evaluate("sessionStorage.length") == 0


@pytest.mark.parametrize(("late", "left"), [("**/v1/models", "#weights option"), ("**/api/v1/status", "#status td")])
def test_what_comes_late_for_a_key_that_was_forgotten_is_not_shown(
    started: Browser, host: Host, late: str, left: str
) -> None:
    """Would catch an answer under way that fills the page for the next person, who has another key."""
    held: list[Route] = []
    with window(started, f"{host.url}/page/") as page:
        page.route(late, lambda route: held.append(route))
        page.locator("#key").fill(KEY)
        with page.expect_request(late):
            page.keyboard.press("Enter")
        page.evaluate("document.getElementById('forget').click()")
        page.locator("#key").fill(OTHER_KEY)
        page.keyboard.press("Enter")
        with page.expect_response(late):
            held[0].continue_()
        page.evaluate("fetch('style.css').then((answer) => answer.text())")  # by then the page has read it
        assert page.locator(left).count() == 0


def test_texts_of_others_are_text(started: Browser, host: Host) -> None:
    """Would catch a session's name that becomes part of the page, and one that turns the direction of writing."""
    with window(started, address(host)) as page:
        shown(page)
        rows = page.locator("#session-rows tbody tr")
        expect(rows).to_have_count(2)
        for text in rows.locator("td:nth-child(2)").all_inner_texts():
            assert text.startswith(r"<script>alert(1)</script>\x1b]0;owned\x07\u202e</td> of ")
        assert page.locator("script").count() == 1


def test_a_tenant_is_shown_its_own(started: Browser, host: Host) -> None:
    with window(started, address(host, OTHER_KEY)) as page:
        shown(page)
        expect(page.locator("#session-rows tbody tr")).to_have_count(1)
        expect(page.locator("#session-rows")).to_contain_text(f"of {OTHER_KEY[-4:]}")
        expect(page.locator("#tenant-rows tbody tr")).to_have_count(2)
        expect(page.locator("#tenant-rows")).to_contain_text("the server's first key")
        expect(page.locator("#storage-facts")).to_contain_text("told to the holder of the first key")


@pytest.mark.parametrize("mode", ["chat", "text"])
def test_an_answer_is_text_and_comes_as_it_is_sampled(started: Browser, host: Host, mode: str) -> None:
    """Would catch an answer that runs as a script."""
    with window(started, address(host)) as page:
        shown(page)
        expect(page.locator("#weights option")).to_have_count(1)
        page.locator(f"input[value={mode}]").check()
        page.locator("#prompt").fill("Say something <b>bad</b>.")
        page.locator("#prompt").press("Control+Enter")
        expect(page.locator("#left .said")).to_have_text(ANSWER)
        expect(page.locator("#left .ended")).to_contain_text("tokens")
        assert page.locator("#left .said *").count() == 0
        assert page.title() == "cookhouse server"
        assert page.locator("#send").is_enabled()


def test_what_is_refused_is_said(started: Browser, host: Host) -> None:
    """Would catch a form that stays without a word, and one that cannot be used again."""
    with quiet(started, address(host)) as page:
        shown(page)
        expect(page.locator("#weights option")).to_have_count(1)
        page.locator("#prompt").fill("x " * 8000)
        page.locator("#send").click()
        expect(page.locator("#left.failed .ended")).to_contain_text("maximum context length")
        assert page.locator("#send").is_enabled()


def test_a_server_that_is_gone_is_asked_again(started: Browser, host: Host) -> None:
    """Would catch figures of a dead server that look like those of a living one."""
    with quiet(started, address(host)) as page:
        shown(page)
        page.route("**/api/v1/status", lambda route: route.abort())
        expect(page.locator("#state.bad")).to_contain_text("Gone")
        assert page.locator("#status").is_visible()
        page.unroute("**/api/v1/status")
        shown(page)


def test_it_follows_what_happens(started: Browser, host: Host) -> None:
    """Would catch a page that has to be loaded again."""
    with window(started, address(host)) as page:
        shown(page)
        expect(page.locator("#models")).to_contain_text("No model is in training")
        server = Server(host, host.service)  # type: ignore[arg-type]
        model_id = server.model(server.session())
        expect(page.locator("#models tbody td").first).to_have_text(model_id)
        page.evaluate("getSelection().selectAllChildren(document.querySelector('#models tbody td'))")
        for _ in range(2):
            with page.expect_response("**/api/v1/status"):
                pass
        assert page.evaluate("String(getSelection())") == model_id, "a look takes the selection away"
        server.post(f"/sessions/{model_id.partition(':')[0]}/finish", reason={"type": "success"})
        server.close()
        expect(page.locator("#models")).to_contain_text("No model is in training")


def test_workers_that_come_and_go_have_rows_while_they_are_there(started: Browser, tmp_path: Path) -> None:
    """Would catch a page that shows the first worker alone, or one that has ended."""
    with (
        hosted(tmp_path, lambda: ScriptedEngine([]), plans=plans_of(workers=2)) as host,
        window(started, address(host)) as page,
    ):
        names = page.locator("#worker-rows tbody td:first-child")
        expect(names).to_have_text(["worker0", "worker1"])
        expect(page.locator("#tiles")).to_contain_text("2 of 2 up")
        server = Server(host, host.service)  # type: ignore[arg-type]
        server.post("/workers")
        expect(names).to_have_text(["worker0", "worker1", "worker2"])
        server.post("/workers/worker0/drain", seconds=0)
        expect(names).to_have_text(["worker1", "worker2"])
        expect(page.locator("#worker-work tbody td:first-child")).to_have_text(["worker1", "worker2"])
        server.close()


def test_states_and_shares_are_those_of_the_status(started: Browser, tmp_path: Path) -> None:
    """Would catch idle workers made of those that have not said, and a first start that is shown as a loss."""
    workers: list[dict[str, Any]] = [{}, {}]

    def change(route: Route) -> None:
        answer = route.fetch()
        told = answer.json()
        told["workers"] = [{**one, **changed} for one, changed in zip(told["workers"], workers, strict=False)]
        route.fulfill(response=answer, json=told)

    with (
        hosted(tmp_path, lambda: ScriptedEngine([]), plans=plans_of(workers=2)) as host,
        window(started, f"{host.url}/page/") as page,
    ):
        page.route("**/api/v1/status", change)
        page.locator("#key").fill(KEY)
        page.keyboard.press("Enter")
        first = page.locator("#tiles div").first
        workers[:] = [{"utilization": 0.9}, {"utilization": None}]
        expect(first).to_contain_text("busy 90 % of the time, 1 not known")
        workers[:] = [{"state": "starting", "is_up": False}]
        expect(first).to_have_text("Workerstartingnot up yet")
        expect(page.locator("#worker-rows tbody td:nth-child(3)")).to_have_text("starting")
        workers[:] = [{"state": "restarting", "is_up": False, "last_loss": {"seconds_ago": 3.0, "reason": "a test"}}]
        expect(first).to_have_text("Workerrestartinglost 3.0 s ago")


@pytest.mark.parametrize(("width", "scheme"), [(420, "light"), (420, "dark"), (1400, "light"), (1400, "dark")])
def test_it_fits_into_the_window(started: Browser, host: Host, width: int, scheme: Any) -> None:
    with window(started, address(host), width, scheme=scheme) as page:
        shown(page)
        expect(page.locator("#routes tbody tr").first).to_be_visible()
        assert wider_than_window(page) == 0
        light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(250, 248, 245)"
        assert light == (scheme == "light")
