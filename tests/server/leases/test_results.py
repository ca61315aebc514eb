"""Catches results that a server tells though its sessions may be another's by then."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
import sqlalchemy as sa
from tests.server.leases.conftest import SETTINGS, Shared
from tests.server.leases.test_routing import in_thread
from tests.server.test_silence import HeldEngine
from tests.waiting import wait_until

from cookhouse.engine.contract import ForwardBackward, ForwardBackwardOutput
from cookhouse.errors import InputError
from cookhouse.server.leases.heartbeats import Keeper
from cookhouse.server.refusals import StorageBusyError


def test_a_poll_ends_without_a_result_once_the_lease_is_gone(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a result of a server that was taken for dead, beside the one of who took its place."""
    engine = HeldEngine()
    with shared.server(make_engine=lambda: engine) as server:
        accepted = server.forward_backward(server.model(server.session()), 1).json()["request_id"]
        waiting = in_thread(server, "/retrieve_future", request_id=accepted)
        future = server.host.service.sequencer.futures.peek(accepted)
        assert future is not None
        wait_until(lambda: future.done._waiters)
        with monkeypatch.context() as lost:
            lost.setattr(Keeper, "is_current", property(lambda _: False))
            engine.free.set()
            answer = waiting.result(20)
            assert (answer.status_code, answer.json()["type"]) == (408, "try_again")
        assert server.result(accepted).status_code == 200


class FailingEngine(HeldEngine):
    """Refuses each pass once it is let."""

    def forward_backward(self, requests: Sequence[ForwardBackward]) -> Sequence[ForwardBackwardOutput | InputError]:
        return [InputError("no such thing") for _ in super().forward_backward(requests)]


def test_a_failure_that_is_not_written_down_is_not_told(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a client that hears of a failure which the next server's replay does not have."""
    engine = FailingEngine()
    settings = replace(SETTINGS, store_patience_seconds=0.2, long_poll_seconds=2.0)
    with shared.server(settings, make_engine=lambda: engine) as server:
        accepted = server.forward_backward(server.model(server.session()), 1).json()["request_id"]

        @contextmanager
        def away(*_: object) -> Iterator[sa.Connection]:
            raise StorageBusyError("the database is away")
            yield

        with monkeypatch.context() as cut:
            cut.setattr(server.host.service.storage.store.database, "transaction", away)
            engine.free.set()
            assert server.result(accepted).status_code == 408
        assert "no such thing" in server.result(accepted).json()["error"]
