"""Catches a simulated engine in whose state lost, doubled or reordered work does not show, or that takes other time."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cookhouse.engine.contract import (
    AdamStep,
    ForwardBackward,
    LoraSpec,
    SampleOutput,
    SampleRequest,
    TrainingDatum,
)
from cookhouse.engine.engine import SampleFailure
from cookhouse.engine.simulated import Costs, SimulatedEngine, State, sampled
from cookhouse.errors import InputError

BASE = "cookhouse/tiny"


def a_pass(first: int, *, length: int = 4, forward_only: bool = False) -> ForwardBackward:
    tokens_T = np.arange(first, first + length)
    datum = TrainingDatum(tokens_T=tokens_T, loss_fn_inputs={"target_tokens": tokens_T})
    return ForwardBackward(model_id="m", data_D=[datum], loss_fn="cross_entropy", forward_only=forward_only)


def a_sample(request_id: str = "r", snapshot_id: str | None = None, **changes: Any) -> SampleRequest:
    settings: dict[str, Any] = {"prompt_T": np.array([1, 2]), "max_tokens": 8, "seed": 3, "stop": [], **changes}
    return SampleRequest(request_id=request_id, base_model=BASE, snapshot_id=snapshot_id, **settings)


def new_engine(**options: Any) -> SimulatedEngine:
    engine = SimulatedEngine(**{"spend": lambda _seconds: None, **options})
    engine.create_model("m", BASE, LoraSpec())
    return engine


Change = Callable[[SimulatedEngine], object]
CHANGES: Sequence[Change] = (
    lambda engine: engine.forward_backward([a_pass(1)]),
    lambda engine: engine.forward_backward([a_pass(2)]),
    lambda engine: engine.optim_step("m", AdamStep(learning_rate=0.1)),
)


def state_after(changes: Sequence[Change]) -> State:
    engine = new_engine()
    for change in changes:
        change(engine)
    return engine.state("m")


def weights_after(changes: Sequence[Change]) -> str:
    """Once all passes have been stepped over."""
    return state_after([*changes, CHANGES[2]]).weights


def test_a_state_tells_what_was_done_in_what_order_and_how_often() -> None:
    programs = [*permutations(CHANGES), CHANGES[:2], CHANGES[1:], (*CHANGES, CHANGES[2]), (CHANGES[0], *CHANGES), ()]
    assert len({state_after(program) for program in programs}) == len(programs)
    assert len({weights_after(program) for program in programs}) == len(programs)
    assert state_after(CHANGES) == state_after(CHANGES)


def test_a_pass_leaves_the_weights_until_the_step() -> None:
    """Would catch a simulation in which what is published does not depend on when."""
    assert state_after(CHANGES[:2]).weights == state_after(()).weights != state_after(CHANGES).weights


def test_what_only_computes_leaves_the_state() -> None:
    engine = new_engine()
    before = engine.state("m")
    engine.forward_backward([a_pass(1, forward_only=True)])
    assert engine.state("m") == before


def test_samples_follow_from_seed_prompt_and_weights() -> None:
    """Would catch a sample of another's weights that goes unseen."""
    engine = new_engine()
    engine.snapshot("m", "before")
    engine.forward_backward([a_pass(1)])
    engine.optim_step("m", AdamStep(learning_rate=0.1))
    engine.snapshot("m", "after")
    requests = [
        a_sample("bare"),
        a_sample("before", "before"),
        a_sample("after", "after"),
        a_sample("seed", "after", seed=4),
        a_sample("prompt", "after", prompt_T=np.array([2, 1])),
        a_sample("two", "after", num_samples=2),
        a_sample("again", "after"),
    ]
    for request in requests:
        engine.submit_sample(request)
    tokens: dict[str, list[tuple[int, ...]]] = {}
    while engine.has_samples():
        for output in engine.step_samples():
            assert isinstance(output, SampleOutput)
            tokens[output.request_id] = [tuple(sequence.tokens_T.tolist()) for sequence in output.sequences]
    assert tokens["again"] == tokens["after"] == tokens["two"][:1]
    assert len({sequence for sequences in tokens.values() for sequence in sequences}) == 6
    assert tokens["bare"] == [tuple(sampled(requests[0], BASE)[0].tokens_T.tolist())]


def test_a_sample_takes_one_step_a_token_and_streams_what_it_gives() -> None:
    engine = new_engine()
    engine.submit_sample(a_sample(is_streamed=True, num_samples=3, max_tokens=2000, stop=None))
    parts: list[list[int]] = [[], [], []]
    num_steps = 0
    whole = None
    while engine.has_samples():
        num_steps += 1
        for output in engine.step_samples():
            assert isinstance(output, SampleOutput)
            if not output.is_partial:
                whole = output
                continue
            for part, sequence in zip(parts, output.sequences, strict=True):
                part.extend(sequence.tokens_T.tolist())
    assert whole is not None
    assert parts == [sequence.tokens_T.tolist() for sequence in whole.sequences]
    assert num_steps == max(len(part) for part in parts)
    assert len({len(part) for part in parts}) > 1  # they end at end tokens, each at its own
    assert all(0 not in part[:-1] for part in parts)


def test_a_canceled_sample_gives_nothing() -> None:
    engine = new_engine()
    engine.submit_sample(a_sample(is_streamed=True))
    engine.step_samples()
    engine.cancel_sample("r")
    assert not engine.has_samples()
    assert [engine.step_samples() for _ in range(10)] == [[]] * 10


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    engine = new_engine()
    for change in (*CHANGES, CHANGES[0]):
        change(engine)
    state = engine.state("m")
    engine.save_state("m", tmp_path / "all", with_optimizer=True, with_gradient=True)
    engine.save_state("m", tmp_path / "state", with_optimizer=True)
    for folder, loaded in (("all", state), ("state", replace(state, gradient=""))):
        engine.load_state("n", BASE, LoraSpec(), tmp_path / folder, with_optimizer=True, with_gradient=True)
        assert engine.state("n") == loaded
    engine.load_state("n", BASE, LoraSpec(), tmp_path / "all", with_optimizer=False)
    assert engine.state("n") == State(state.weights)
    engine.save_state("m", tmp_path / "weights", with_optimizer=False)
    with pytest.raises(InputError, match="weights only"):
        engine.load_state("n", BASE, LoraSpec(), tmp_path / "weights", with_optimizer=True)


def test_work_takes_the_seconds_that_it_is_given() -> None:
    spent: list[float] = []
    costs = Costs(
        pass_seconds=10,
        pass_token_seconds=1,
        step_seconds=100,
        decode_seconds=1000,
        decode_token_seconds=1,
        prompt_token_seconds=10,
    )
    engine = new_engine(costs=costs, spend=spent.append)
    spent.clear()
    engine.forward_backward([a_pass(1, length=3), a_pass(2, length=4)])
    engine.optim_step("m", AdamStep(learning_rate=0.1))
    engine.submit_sample(a_sample())
    engine.submit_sample(a_sample("s"))
    engine.step_samples()
    assert spent[:2] == [17, 100]
    engine.step_samples()
    assert spent[-2:] == [1042, 1002]  # two prompts of two tokens are computed once


def test_a_fault_comes_before_anything_has_changed() -> None:
    """Would catch a failed step that is done all the same."""
    failing: set[str] = set()

    def faults(method: str) -> float:
        if method in failing:
            raise RuntimeError(f"{method} fails")
        return 0.0

    engine = new_engine(faults=faults)
    engine.submit_sample(a_sample(max_tokens=1))
    before = engine.state("m")
    failing |= {"forward_backward", "optim_step", "snapshot", "step_samples"}
    (output,) = engine.forward_backward([a_pass(1)])
    assert isinstance(output, RuntimeError)
    with pytest.raises(RuntimeError):
        engine.optim_step("m", AdamStep(learning_rate=0.1))
    with pytest.raises(RuntimeError):
        engine.snapshot("m", "s")
    (failure,) = engine.step_samples()
    assert isinstance(failure, SampleFailure)
    assert engine.state("m") == before
    failing.clear()
    with pytest.raises(InputError, match="no snapshot"):
        engine.submit_sample(a_sample(snapshot_id="s"))
