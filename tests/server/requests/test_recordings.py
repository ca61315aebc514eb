"""Sampled sequences that are kept, and data that say where they come from."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from tests.server.conftest import OpenStore, Place
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import hosted
from tests.server.test_routes import Server
from tinker.proto import tinker_public_pb2 as pb

from cookhouse.engine.contract import SampledSequence, SampleOutput, SampleRequest
from cookhouse.errors import InputError
from cookhouse.server.requests import recordings
from cookhouse.server.requests.recordings import Recordings
from cookhouse.server.settings import Settings
from cookhouse.server.storage.store.store import Store
from cookhouse.server.wire import decode_pass, parse_training

PROMPT, ANSWERS = [5, 6, 7], ([1, 2, 3, 4], [2, 1])
MAX_BYTES = 2**20


@pytest.fixture
def store(place: Place, open_store: OpenStore) -> Store:
    """With both answers of `sample`, which a server that has ended has recorded."""
    with closing(Store(place)) as before:
        request = SampleRequest(
            request_id="sample", base_model="m", snapshot_id=None, prompt_T=np.array(PROMPT), seed=1, num_samples=2
        )
        sequences = [
            SampledSequence(
                tokens_T=np.array(answer, np.int32), logprobs_T=-np.array(answer, np.float32), is_stopped=False
            )
            for answer in ANSWERS
        ]
        output = SampleOutput(request_id="sample", sequences=sequences)
        asyncio.run(Recordings(before, None, max_bytes=MAX_BYTES).add("session", "me", request, output))
        before.flush()
    return open_store(place)


def check(
    store: Store, body: bytes, session_id: str = "session", owner: str = "me", *, max_bytes: int = MAX_BYTES
) -> None:
    head = parse_training(body)
    Recordings(store, None, max_bytes=max_bytes).check(session_id, owner, head, decode_pass(head, max_bytes=MAX_BYTES))


def body_of(*indices: int, span_lengths: Sequence[int] = (100,), model_id: str = "m", seq_id: int = 1) -> bytes:
    """A request of a datum for each of these answers, whose tokens are spans of these lengths."""
    message = pb.ForwardBackwardRequest(model_id=model_id, seq_id=seq_id, loss_fn="stable_reinforce")
    for index in indices:
        answer, name = ANSWERS[index], f"sample-{index}"
        datum = message.data.add()
        datum.model_input.add().encoded_text.tokens = np.array([*PROMPT, *answer[:-1]], "<i4").tobytes()
        padding = [0] * (len(PROMPT) - 1)
        targets, logprobs = np.array([*padding, *answer], "<i8"), -np.array([*padding, *answer], "<f4")
        datum.loss_fn_inputs["target_tokens"].CopyFrom(pb.Tensor(dtype=pb.DTYPE_INT64, dense=targets.tobytes()))
        for key in ("logprobs", "advantages"):
            datum.loss_fn_inputs[key].CopyFrom(pb.Tensor(dtype=pb.DTYPE_FLOAT32, dense=logprobs.tobytes()))
        for spans, first, num_sampled in (
            (datum.model_input_spans, 0, len(answer) - 1),
            (datum.loss_fn_input_spans, 1, len(answer)),
        ):
            prompt = spans.add().prompt_tokens
            prompt.sequence_id, prompt.offset, prompt.length = name, first, len(PROMPT) - first
            offset, lengths = 0, iter(span_lengths)
            while offset < num_sampled:
                span = spans.add().sampled_tokens
                span.sequence_id, span.offset, span.length = name, offset, min(next(lengths), num_sampled - offset)
                offset += span.length
    return message.SerializeToString()


def test_what_was_recorded_before_a_restart_may_be_trained_on(store: Store) -> None:
    """Would catch answers of one request that are taken for one another."""
    check(store, body_of(0, 1))


@pytest.mark.parametrize(("session_id", "owner"), [("session", "you"), ("other", "me")])
def test_sequences_are_of_one_session_and_its_tenant(store: Store, session_id: str, owner: str) -> None:
    with pytest.raises(InputError, match="datum 0: 'sample-1' is no sequence that this session has recorded"):
        check(store, body_of(1), session_id, owner)


def test_a_request_cannot_have_all_that_is_recorded_read(store: Store) -> None:
    """Would catch a small request for which the server takes the memory of everything that is kept."""
    check(store, body_of(1), max_bytes=1000)
    with pytest.raises(InputError, match="have over 1000 bytes; send fewer datums"):
        check(store, body_of(0, 1), max_bytes=1000)


def test_many_spans_of_a_sequence_are_checked_at_the_cost_of_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a prompt that is read again for each of a datum's tokens: minutes for one request."""
    digest = Mock(wraps=recordings._digest)
    monkeypatch.setattr(recordings, "_digest", digest)
    check(store, body_of(0, span_lengths=[1, 2, 1]))
    assert digest.call_count == 1


def test_one_request_is_checked_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch memory for what many requests name at once, and threads that are left for nothing else."""
    running: list[int] = []
    most: list[int] = []

    def checking(*_: object) -> None:
        running.append(1)
        most.append(len(running))
        time.sleep(0.05)
        running.pop()

    monkeypatch.setattr(Recordings, "check", checking)
    engine = FakeEngine()
    with hosted(tmp_path, lambda: engine, Settings(stable_reinforce="own")) as host:
        server = Server(host, engine)
        with server.http, ThreadPoolExecutor(4) as senders:
            model_id = server.model(server.session())
            bodies = [body_of(0, model_id=model_id, seq_id=seq_id) for seq_id in range(1, 5)]
            answers = list(senders.map(lambda body: server.http.post("/forward_backward", content=body), bodies))
    assert [answer.status_code for answer in answers] == [200] * 4
    assert most == [1] * 4
