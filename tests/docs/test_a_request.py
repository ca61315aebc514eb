"""Runs what the page about a request says: catches a function that is gone, or called in another order or not at all.

Where code has changed, mend the page's tables: they are all that is compared.
"""

import re
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType

import pytest
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import Host, hosted
from tests.server.test_routes import Server
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
SOURCE = f"{ROOT / 'src' / 'cookhouse'}/"
PAGE = (ROOT / "docs" / "concepts" / "a-request.md").read_text(encoding="utf-8")
Call = tuple[str, str]
"""A file below `SOURCE`, and a function in it with its class."""
TABLES: Mapping[str, Sequence[Call]] = {
    part.partition("\n")[0]: re.findall(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", part, re.MULTILINE)
    for part in PAGE.split("\n## ")[1:]
}
PASS, SAMPLE, RESTART = "A pass", "A sample", "After `kill -9`"


@contextmanager
def traced() -> Iterator[list[Call]]:
    """Every call of our functions until the block ends, of this thread and of those that start in it."""
    calls: list[Call] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE):
            calls.append((code.co_filename.removeprefix(SOURCE), code.co_qualname))

    before = sys.getprofile(), threading.getprofile()
    sys.setprofile(note)
    threading.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before[0])
        threading.setprofile(before[1])


def finished(host: Host, request_id: str) -> str:
    """The id, once the request has its result, so that it is asked for behind that."""

    def has_result() -> bool:
        future = host.service.sequencer.futures.peek(request_id)
        return future is not None and future.result is not None

    wait_until(has_result)
    return request_id


def asked(state_dir: Path, killed: Path, calls: list[Call]) -> tuple[str, dict[str, Sequence[Call]]]:
    """A pass, whose id is told, and a sample, with what is called for each. `killed`: where to put what a kill behind
    the pass would leave.
    """
    made: dict[str, Sequence[Call]] = {}
    with hosted(state_dir, FakeEngine) as host, closing(Server(host, FakeEngine())) as server:
        session_id = server.session()
        model_id = server.model(session_id)
        start = len(calls)
        accepted = server.forward_backward(model_id, 1).json()["request_id"]
        server.result(finished(host, accepted))
        made[PASS] = calls[start:]
        shutil.copytree(state_dir, killed)
        sampler = server.post(
            "/create_sampling_session", session_id=session_id, sampling_session_seq_id=0, base_model="cookhouse/tiny"
        )
        start = len(calls)
        sampled = server.post(
            "/asample",
            sampling_session_id=sampler["sampling_session_id"],
            prompt={"chunks": [{"type": "encoded_text", "tokens": [1]}]},
            sampling_params={"max_tokens": 1},
        )
        server.result(finished(host, sampled["request_id"]))
        made[SAMPLE] = calls[start:]
    return accepted, made


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Sequence[Call]]:
    """What is called for each part of the page."""
    folder = tmp_path_factory.mktemp("request")
    (folder / "state").mkdir()
    with traced() as calls:
        accepted, made = asked(folder / "state", folder / "killed", calls)
        start = len(calls)
        with hosted(folder / "killed", FakeEngine) as host, closing(Server(host, FakeEngine())) as server:
            assert server.result(finished(host, accepted)).status_code == 200
        made[RESTART] = calls[start:]
    return made


def first_missing(table: Sequence[Call], calls: Sequence[Call]) -> str | None:
    """The first line of a table that is not called behind those before it."""
    left = iter(calls)
    for file, function in table:
        if (file, function) not in left:
            return f"{file} {function} is called " + ("before" if (file, function) in calls else "never")
    return None


@pytest.mark.parametrize("part", [PASS, SAMPLE, RESTART])
def test_functions_of_the_page_are_called_in_its_order(made: Mapping[str, Sequence[Call]], part: str) -> None:
    assert len(TABLES[part]) >= 12
    assert first_missing(TABLES[part], made[part]) is None


def test_every_table_is_run() -> None:
    assert TABLES.keys() == {PASS, SAMPLE, RESTART}


def test_a_page_that_is_wrong_is_refused() -> None:
    """Would catch a test that every page passes."""
    calls = [("a.py", "f"), ("b.py", "C.g"), ("a.py", "f")]
    assert first_missing([("a.py", "f"), ("b.py", "C.g")], calls) is None
    assert first_missing([("b.py", "C.g"), ("b.py", "C.g")], calls) == "b.py C.g is called before"
    assert first_missing([("a.py", "g")], calls) == "a.py g is called never"
