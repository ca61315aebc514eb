"""Groups written as JSON come back as they were."""

import json
import math
from dataclasses import replace

import pytest
import tinker
from hypothesis import given
from hypothesis import strategies as st

from cookhouse.errors import InputError
from cookhouse.rl import (
    RolloutFailure,
    TokensWithLogprobs,
    Trajectory,
    TrajectoryGroup,
    Transition,
    group_from_json,
    group_to_json,
)
from cookhouse.telemetry import Note, Scope, Table

floats = st.floats(allow_nan=False)
metrics = st.dictionaries(st.text(max_size=5), floats, max_size=2)
any_text = st.text(st.characters(), max_size=8)  # surrogates, line separators and all
tokens = st.lists(st.integers(0, 9), max_size=4)

rows = st.lists(st.lists(any_text, min_size=2, max_size=2), max_size=2)
entries = st.recursive(
    st.builds(Note, text=any_text) | st.builds(Table, columns=st.just(["a", "b"]), rows=rows),
    lambda inner: st.builds(Scope, title=any_text, is_open=st.booleans(), entries=st.lists(inner, max_size=2)),
    max_leaves=3,
).map(lambda entry: [entry])


@st.composite
def inputs(draw: st.DrawFn, previous: list[int]) -> tinker.ModelInput:
    kept = draw(st.sampled_from([previous, previous[:-1], []]))
    chunks = [kept + draw(tokens), *draw(st.lists(tokens, max_size=2))]
    chunks = draw(st.sampled_from([chunks, chunks, []]))
    return tinker.ModelInput(chunks=[tinker.EncodedTextChunk(tokens=chunk) for chunk in chunks])


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    transitions: list[Transition] = []
    previous: list[int] = []
    for _ in range(draw(st.integers(0, 3))):
        observation = draw(inputs(previous))
        action = draw(tokens)
        logprobs = draw(st.none() | st.lists(floats, min_size=len(action), max_size=len(action)))
        transitions.append(
            Transition(
                observation=observation,
                action=TokensWithLogprobs(
                    tokens=action,
                    maybe_logprobs=logprobs,
                    is_truncated=draw(st.booleans()),
                    is_masked=draw(st.none() | st.lists(st.booleans(), min_size=len(action), max_size=len(action))),
                    is_grammar_end=draw(st.booleans()),
                ),
                reward=draw(floats),
                episode_done=draw(st.booleans()),
                entries=draw(entries),
                metrics=draw(metrics),
                logs=draw(st.dictionaries(any_text, any_text, max_size=2)),
            )
        )
        previous = [*observation.to_ints(), *action]
    stop_reason = draw(st.sampled_from(["done", "max_turns"]))
    return Trajectory(transitions=transitions, final_observation=draw(inputs(previous)), stop_reason=stop_reason)


@st.composite
def groups(draw: st.DrawFn) -> TrajectoryGroup:
    trajectories_G = draw(st.lists(trajectories(), max_size=3))
    size = len(trajectories_G)
    failure = st.builds(
        RolloutFailure,
        member=st.integers(-1, 3),
        attempt=st.integers(0, 2),
        origin=st.sampled_from(["env", "sampling"]),
        reason=any_text,
        outcome=st.sampled_from(["given_up", "retried", "kept"]),
    )
    return TrajectoryGroup(
        trajectories_G=trajectories_G,
        group_rewards_G=draw(st.lists(floats, min_size=size, max_size=size)),
        group_metrics_G=draw(st.lists(metrics, min_size=size, max_size=size)),
        tags=draw(st.lists(any_text, max_size=2)),
        version=draw(st.integers(0, 10**9)),
        failures=tuple(draw(st.lists(failure, max_size=2))),
        seconds=draw(st.floats(0, 1e6)),
    )


@given(groups())
def test_a_group_comes_back_as_it_was(group: TrajectoryGroup) -> None:
    # Resuming trains on what comes back: a lost bit of a logprob would make it another run.
    text = group_to_json(group)
    assert group_from_json(text) == group
    assert text.isascii()  # any encoding, and any way to split lines, keeps it
    assert "\n" not in text


GROUP = TrajectoryGroup(
    trajectories_G=[
        Trajectory(
            transitions=[
                Transition(
                    observation=tinker.ModelInput.from_ints(list(range(1000))),
                    action=TokensWithLogprobs(tokens=[5], maybe_logprobs=[-math.inf]),
                    reward=math.nan,
                    episode_done=False,
                ),
                Transition(
                    observation=tinker.ModelInput.from_ints([*range(1000), 5, 6]),
                    action=TokensWithLogprobs(tokens=(7,), maybe_logprobs=(-0.1,)),
                    reward=0.0,
                    episode_done=True,
                ),
            ],
            final_observation=tinker.ModelInput.empty(),
        )
    ],
    group_rewards_G=[0.0],
    group_metrics_G=[{}],
    tags=(),
    version=3,
)


def test_figures_that_are_no_numbers_are_kept() -> None:
    [trajectory] = group_from_json(group_to_json(GROUP)).trajectories_G
    assert math.isnan(trajectory.transitions[0].reward)
    assert trajectory.transitions[0].action.logprobs == [-math.inf]
    assert trajectory.transitions[1].action == TokensWithLogprobs(tokens=[7], maybe_logprobs=[-0.1])


def test_a_conversation_costs_its_length_once() -> None:
    value = json.loads(group_to_json(GROUP))
    assert value["trajectories"][0]["turns"][1]["observation"] == {"shared": 1001, "tokens": [6]}


NO_TOKENS = group_to_json(GROUP).replace('"tokens":[6]', '"tokens":["six"]')


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", '{"format": 2}', '{"format": 1, "trajectories": 5}', NO_TOKENS, NO_TOKENS[:-1]]
)
def test_what_is_no_group_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="transcript"):
        group_from_json(text)


def test_an_image_is_refused() -> None:
    image = tinker.types.ImageAssetPointerChunk(format="png", location="x", expected_tokens=4)
    transition = replace(GROUP.trajectories_G[0].transitions[0], observation=tinker.ModelInput(chunks=[image]))
    trajectory = replace(GROUP.trajectories_G[0], transitions=[transition])
    with pytest.raises(InputError, match="image"):
        group_to_json(replace(GROUP, trajectories_G=[trajectory]))
