"""Catches an old form of the wire that does not come back from a kill: what is kept of it is not what came."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kills.raw import Raw
from tests.kills.test_faults import SETTINGS, serving
from tests.server.old_forms import FORMS, FORWARD, Form

pytestmark = pytest.mark.slow
NUM_ROUNDS = 4
Ended = tuple[list[Any], Any]
"""Results of the passes and norms of the gradients, and what has been learned."""


def work(raw: Raw, form: Form, *, is_killed: bool) -> Ended:
    """Rounds of two passes, of which one only scores, and a step; the server is killed after each is accepted, and each
    is sent again.
    """
    scoring = replace(FORWARD, has_seq_id=form.has_seq_id)
    request_ids: list[str] = []
    for index in range(NUM_ROUNDS):
        first = 3 * index + 1
        request_ids.append(_send(raw, form, first, index + 2))
        request_ids.append(_send(raw, scoring, first + 1, index + 3))
        step = raw.stepping(first + 2)
        headers = {}
        if not form.has_seq_id:
            del step["seq_id"]
            headers["X-Idempotency-Key"] = f"step-{index}"
        sent = [raw.until(lambda: raw.http.post("/optim_step", json=step, headers=headers)).json() for _ in range(2)]  # noqa: B023
        assert sent[0] == sent[1]
        request_ids.append(sent[0]["request_id"])
        if is_killed:
            raw.server.wait_for_start(raw.server.kill())
            assert _send(raw, form, first, index + 2) == request_ids[-3]
            assert _send(raw, scoring, first + 1, index + 3) == request_ids[-2]
    results = [raw.until(lambda: FORWARD.result(raw.http, one)).json() for one in request_ids]  # noqa: B023
    for result in results:
        for fields in result.get("loss_fn_outputs", ()):
            del fields["logprobs"]["shape"]  # which is that of the targets
    return results, raw.state(3 * NUM_ROUNDS + 1)


def _send(raw: Raw, form: Form, seq_id: int, token: int) -> str:
    return str(raw.until(lambda: form.send(raw.http, raw.model_id, seq_id, token)).json()["request_id"])


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """What `work` gives in the form of 0.18 where nothing goes wrong."""
    with serving(tmp_path_factory.mktemp("undisturbed"), SETTINGS) as raw:
        return work(raw, FORMS["0.18"], is_killed=False)


@pytest.mark.parametrize("name", FORMS)
def test_kills_change_nothing(tmp_path: Path, name: str, expected: Ended) -> None:
    """Would catch a pass that is lost, done twice, or read otherwise when it runs again."""
    with serving(tmp_path, SETTINGS) as raw:
        found = work(raw, FORMS[name], is_killed=True)
    assert json.dumps(found) == json.dumps(expected)
