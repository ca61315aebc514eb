"""Group rollouts: what is asked of the sampler, what ends them, and what becomes of failures."""

import asyncio
import gc
import json
import pickle
import random
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tinker
from tests.rl.scripted import ANSWER, PROMPT, CoupledScriptedBuilder, ScriptedBuilder, ScriptedEnv

from cookhouse.errors import InputError
from cookhouse.rl import (
    FAIL_FAST,
    GroupFailedError,
    RolloutFailure,
    RolloutLimits,
    RolloutStrategy,
    StepResult,
    TrajectoryGroup,
    derive_seed,
    do_group_rollout,
    failure_metrics,
    minimum_viable,
    retry,
)
from cookhouse.rl.rollouts import closing
from cookhouse.rl.sampling.fake import FakeSampler
from cookhouse.telemetry import Note, Scope, note, scope

pytestmark = pytest.mark.anyio

Fail = Callable[[str, int, int], Awaitable[None]]
PICTURE = tinker.ModelInput(chunks=[tinker.types.ImageAssetPointerChunk(format="png", location="x", expected_tokens=4)])


def failing(where: str, member: int, *, attempts: int = 1) -> Fail:
    """Fails one member at one place in its first attempts."""

    async def fail(at: str, who: int, attempt: int) -> None:
        if (at, who) == (where, member) and attempt < attempts:
            raise ValueError(f"broken {where}")

    return fail


def broken_at(where: str) -> str:
    """What is said of a failure of `failing`: the error, and the line of it that is nobody else's."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (line,) = [number for number, text in enumerate(lines, 1) if text.endswith('raise ValueError(f"broken {where}")')]
    path = Path(__file__)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"ValueError: broken {where} ({shown}, line {line})"


async def test_a_failure_says_where_in_ones_own_file() -> None:
    """Catches the line of a library in place of the line that called it, and none at all."""

    async def fail(*_: object) -> None:
        json.loads("{")

    with pytest.raises(GroupFailedError, match=r"JSONDecodeError: .* \(.*test_group\.py, line \d+\)$"):
        await do_group_rollout(ScriptedBuilder(fail=fail), FakeSampler(), seed=0)


async def test_members_with_one_prompt_are_one_request() -> None:
    # A request costs the client 20 ms; asking G times would make sampling client-bound.
    sampler = FakeSampler(version=7)
    group = await do_group_rollout(ScriptedBuilder(), sampler, seed=5)
    [request] = sampler.requests
    assert (request.prompt, request.stop, request.num_samples) == (list(PROMPT), [0], 4)
    assert request.seed == derive_seed(5, 0, 0)
    assert group.version == 7
    assert group.tags == ["scripted"]
    assert len({tuple(t.transitions[0].action.tokens) for t in group.trajectories_G}) == 4
    assert group.get_total_rewards() == [t.reward + 10.0 * i for i, t in enumerate(group.trajectories_G)]


async def test_members_with_other_prompts_are_asked_apart_and_keep_their_place() -> None:
    sampler = FakeSampler()
    builder = ScriptedBuilder(prompt_of=lambda member: [member % 2 + 1])
    group = await do_group_rollout(builder, sampler, seed=0)
    assert [(r.prompt, r.num_samples, r.seed) for r in sampler.requests] == [
        ([1], 2, derive_seed(0, 0, 0)),
        ([2], 2, derive_seed(0, 0, 1)),
    ]
    assert [t.transitions[0].observation.to_ints() for t in group.trajectories_G] == [[1], [2], [1], [2]]


async def test_later_turns_extend_what_came_before() -> None:
    sampler = FakeSampler()
    group = await do_group_rollout(ScriptedBuilder(num_turns=3), sampler, seed=0)
    assert len(sampler.requests) == 1 + 4 * 2
    for trajectory in group.trajectories_G:
        assert trajectory.stop_reason == "done"
        assert trajectory.final_observation.to_ints() == []
        for before, after in pairwise(trajectory.transitions):
            expected = [*before.observation.to_ints(), *before.action.tokens, ANSWER]
            assert after.observation.to_ints() == expected


async def test_every_turn_of_every_member_has_a_seed_of_its_own() -> None:
    # Catches a turn that draws what the turn before it drew, or what another member draws.
    sampler = FakeSampler()
    await do_group_rollout(ScriptedBuilder(num_turns=3), sampler, seed=5)
    first, *later = [request.seed for request in sampler.requests]
    assert first == derive_seed(5, 0, 0)
    assert sorted(later) == sorted(derive_seed(5, turn, member) for turn in (1, 2) for member in range(4))
    again = FakeSampler()
    builder = ScriptedBuilder(group_size=1, num_turns=2, fail=failing("last_step", 0))
    await do_group_rollout(builder, again, seed=5, strategy=retry(2))
    expected = [derive_seed(5, turn, 0, attempt) for attempt in (0, 1) for turn in (0, 1)]
    assert [request.seed for request in again.requests] == expected


async def test_the_order_in_which_answers_come_changes_nothing() -> None:
    # Seeds drawn from a shared generator, or trajectories in order of completion, would differ.
    def jitter(seed: int) -> Callable[[int], Awaitable[None]]:
        chance = random.Random(seed)

        async def gate(_number: int) -> None:
            for _ in range(chance.randrange(20)):
                await asyncio.sleep(0)

        return gate

    groups = [
        await do_group_rollout(ScriptedBuilder(num_turns=4), FakeSampler(gate=jitter(i)), seed=3) for i in range(3)
    ]
    assert all(replace(group, seconds=0.0) == replace(groups[0], seconds=0.0) for group in groups)


def test_seeds_fit_the_wire_and_differ() -> None:
    seeds = {derive_seed(g, t, m, a) for g in range(4) for t in range(8) for m in range(8) for a in range(3)}
    assert len(seeds) == 4 * 8 * 8 * 3
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive_seed(1, 2, 3) == 6065472413412056399  # a change would silently change every run


# ---------------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("limits", "reason", "num_turns"),
    [
        (RolloutLimits(max_turns=2), "max_turns", 2),
        (RolloutLimits(max_tool_calls=5), "max_tool_calls", 3),
        (RolloutLimits(max_sequence_tokens=9), "max_tokens", 2),
        (RolloutLimits(max_turns=5), "done", 5),
    ],
)
async def test_limits_end_an_episode_and_keep_what_would_have_come(
    limits: RolloutLimits, reason: str, num_turns: int
) -> None:
    sampler = FakeSampler(lambda _prompt, _rng: [7, 7])  # prompts of 3, 6, 9, … tokens
    group = await do_group_rollout(ScriptedBuilder(num_turns=5, tool_calls=2), sampler, seed=0, limits=limits)
    for trajectory in group.trajectories_G:
        assert (trajectory.stop_reason, len(trajectory.transitions)) == (reason, num_turns)
        assert trajectory.final_observation.length == (0 if reason == "done" else 3 + 3 * num_turns)


async def test_a_turn_gets_the_tokens_that_its_prompt_leaves() -> None:
    sampler = FakeSampler(lambda _prompt, _rng: [7] * 100)
    group = await do_group_rollout(
        ScriptedBuilder(num_turns=5), sampler, seed=0, limits=RolloutLimits(max_sequence_tokens=9)
    )
    assert [request.max_tokens for request in sampler.requests] == [6]
    assert {trajectory.stop_reason for trajectory in group.trajectories_G} == {"max_tokens"}


async def test_a_prompt_longer_than_the_limit_is_a_failure_of_the_environment() -> None:
    with pytest.raises(GroupFailedError, match="3 tokens and max_sequence_tokens is 3") as caught:
        await do_group_rollout(ScriptedBuilder(), FakeSampler(), seed=0, limits=RolloutLimits(max_sequence_tokens=3))
    assert caught.value.failures[0].origin == "env"


@pytest.mark.parametrize("limits", [{"max_turns": 0}, {"max_sequence_tokens": 1}, {"max_tool_calls": -1}])
def test_limits_that_leave_nothing_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(InputError, match="must be at least"):
        RolloutLimits(**limits)


# ---------------------------------------------------------------------- failures


@pytest.mark.parametrize("where", ["initial_observation", "step"])
async def test_the_first_failure_ends_the_group_and_the_others(where: str) -> None:
    waiting = 0

    async def fail(at: str, member: int, _attempt: int) -> None:
        nonlocal waiting
        if at == where and member == 2:
            await asyncio.sleep(0)
            raise ValueError("broken")
        if at == where:
            waiting += 1
            await asyncio.Event().wait()

    builder = ScriptedBuilder(fail=fail)
    before = asyncio.all_tasks()
    with pytest.raises(
        GroupFailedError, match=r"env, member 2, attempt 1: ValueError: broken \(.*test_group.py, line \d+\)$"
    ) as caught:
        await do_group_rollout(builder, FakeSampler(), seed=0)
    assert isinstance(caught.value.__cause__, ValueError)
    assert waiting == 3
    assert asyncio.all_tasks() == before
    assert sorted(builder.closed) == [(member, 0) for member in range(4)]


@pytest.mark.parametrize("where", ["initial_observation", "step"])
async def test_retry_gives_the_member_a_fresh_environment_and_other_tokens(where: str) -> None:
    sampler, builder = FakeSampler(), ScriptedBuilder(fail=failing(where, 2))
    group = await do_group_rollout(builder, sampler, seed=0, strategy=retry(2))
    assert [m["member"] for m in group.group_metrics_G] == [0, 1, 2, 3]
    assert group.failures == (
        RolloutFailure(member=2, attempt=0, origin="env", reason=broken_at(where), outcome="retried"),
    )
    assert [(r.num_samples, r.seed) for r in sampler.requests][1:] == [(1, derive_seed(0, 0, 2, 1))]
    assert sorted(builder.closed) == sorted((member, attempt) for member in range(4) for attempt in range(2))


async def test_a_failed_shared_request_is_retried_as_one() -> None:
    # G members that retry alone would cost G requests each time the service hiccups.
    async def gate(number: int) -> None:
        if number == 0:
            raise ConnectionError("reset")

    sampler = FakeSampler(gate=gate)
    group = await do_group_rollout(ScriptedBuilder(), sampler, seed=0, strategy=retry(2))
    assert [request.num_samples for request in sampler.requests] == [4, 4]
    assert {(f.origin, f.reason) for f in group.failures} == {("sampling", "ConnectionError: reset")}
    assert len(group.trajectories_G) == 4


async def test_attempts_run_out() -> None:
    with pytest.raises(GroupFailedError, match=r"member 1, attempt 3: .* \(after 2 earlier failures\)") as caught:
        await do_group_rollout(
            ScriptedBuilder(fail=failing("step", 1, attempts=9)), FakeSampler(), seed=0, strategy=retry(3)
        )
    assert [(f.attempt, f.outcome) for f in caught.value.failures] == [(0, "retried"), (1, "retried"), (2, "given_up")]
    assert pickle.loads(pickle.dumps(caught.value)).failures == caught.value.failures


async def test_a_group_goes_on_without_a_member_while_enough_are_left() -> None:
    builder = ScriptedBuilder(fail=failing("step", 1))
    group = await do_group_rollout(builder, FakeSampler(), seed=0, strategy=minimum_viable(3))
    assert [m["member"] for m in group.group_metrics_G] == [0, 2, 3]
    assert [(f.member, f.outcome) for f in group.failures] == [(1, "given_up")]
    with pytest.raises(GroupFailedError):
        await do_group_rollout(
            ScriptedBuilder(fail=failing("step", 1)), FakeSampler(), seed=0, strategy=minimum_viable(4)
        )


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"reward": float("nan")}, "the reward nan"),
        ({"reward": float("inf")}, "the reward inf"),
        ({"reward": None}, "the reward None"),
        ({"metrics": {"correct": None}}, "the metric 'correct' = None"),
        ({"next_observation": PICTURE}, "an observation holds an image, and rollouts are of text alone"),
    ],
)
async def test_what_cannot_be_trained_on_or_counted_is_a_failure_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, result: dict[str, Any], reason: str
) -> None:
    """Catches NaN advantages of a whole group, which the service would turn into NaN weights."""
    step = ScriptedEnv.step

    async def bad_step(env: ScriptedEnv, action: Sequence[int]) -> StepResult:
        found = await step(env, action)
        return replace(found, **result) if env.member == 1 else found

    monkeypatch.setattr(ScriptedEnv, "step", bad_step)
    with pytest.raises(GroupFailedError, match=f"env, member 1.*{reason}"):
        await do_group_rollout(ScriptedBuilder(), FakeSampler(), seed=0)


async def test_an_image_is_refused_before_anything_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches episodes that are sampled and paid for, and only then cannot be trained on, kept or shown."""

    async def see(_: ScriptedEnv) -> Any:
        return PICTURE, [0]

    monkeypatch.setattr(ScriptedEnv, "initial_observation", see)
    sampler = FakeSampler()
    with pytest.raises(GroupFailedError, match=r"failed in env.*an observation holds an image"):
        await do_group_rollout(ScriptedBuilder(), sampler, seed=0)
    assert sampler.requests == []


async def test_a_group_reward_that_is_no_number_fails_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    async def rewards(*_: object) -> Sequence[tuple[float, dict[str, float]]]:
        return [(float("nan"), {})] * 4

    monkeypatch.setattr(ScriptedBuilder, "compute_group_rewards", rewards)
    with pytest.raises(GroupFailedError, match=r"the group: .*the reward nan"):
        await do_group_rollout(ScriptedBuilder(), FakeSampler(), seed=0)


@pytest.mark.parametrize("where", ["make_envs", "group_rewards"])
@pytest.mark.parametrize("strategy", [FAIL_FAST, retry(3), minimum_viable(1)])
async def test_what_concerns_the_whole_group_fails_it(where: str, strategy: RolloutStrategy) -> None:
    builder = ScriptedBuilder(fail=failing(where, -1))
    with pytest.raises(GroupFailedError, match=f"env, the group: ValueError: broken {where}") as caught:
        await do_group_rollout(builder, FakeSampler(), seed=0, strategy=strategy)
    assert [(f.member, f.origin) for f in caught.value.failures] == [(-1, "env")]
    assert len(builder.closed) == (0 if where == "make_envs" else 4)


async def test_an_environment_that_fails_to_close_costs_nothing_but_is_seen(caplog: pytest.LogCaptureFixture) -> None:
    builder = ScriptedBuilder(fail=failing("close", 0))
    group = await do_group_rollout(builder, FakeSampler(), seed=0)
    assert len(group.trajectories_G) == 4
    assert [(f.member, f.outcome) for f in group.failures] == [(0, "kept")]
    assert sorted(builder.closed) == [(1, 0), (2, 0), (3, 0)]
    assert "failed to close" in caplog.text


async def test_a_sampler_that_breaks_its_promise_is_a_failure_of_sampling() -> None:
    with pytest.raises(GroupFailedError, match=r"in sampling, .* without tokens"):
        await do_group_rollout(ScriptedBuilder(), FakeSampler(lambda _p, _r: []), seed=0)


async def test_a_request_that_somebody_else_cancels_is_a_failure() -> None:
    # A task group ignores tasks that end as cancelled: the group would come back without its members.
    async def gate(_number: int) -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    with pytest.raises(GroupFailedError, match=r"in sampling, .* CancelledError"):
        await do_group_rollout(ScriptedBuilder(), FakeSampler(gate=gate), seed=0)


@pytest.mark.parametrize("where", ["make_envs", "initial_observation", "step", "group_rewards"])
async def test_cancellation_leaves_no_task_and_no_open_environment(where: str) -> None:
    reached = asyncio.Event()

    async def hang(at: str, _member: int, _attempt: int) -> None:
        if at == where:
            reached.set()
            await asyncio.Event().wait()

    builder = ScriptedBuilder(fail=hang)
    before = asyncio.all_tasks()
    running = asyncio.create_task(do_group_rollout(builder, FakeSampler(), seed=0, strategy=retry(3)))
    await reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert asyncio.all_tasks() == before
    assert len(builder.closed) == (0 if where == "make_envs" else 4)


@pytest.mark.parametrize("num_cancellations", [1, 3])
async def test_cancellation_while_environments_close_leaves_none_open(num_cancellations: int) -> None:
    # Catches a list that is emptied before what was in it is closed: a sandbox or a container would stay for ever.
    is_closing, release = asyncio.Event(), asyncio.Event()

    async def wait(at: str, _member: int, _attempt: int) -> None:
        if at == "close":
            is_closing.set()
            await release.wait()

    builder = ScriptedBuilder(fail=wait)
    before = asyncio.all_tasks()
    running = asyncio.create_task(do_group_rollout(builder, FakeSampler(), seed=0))
    await is_closing.wait()
    for _ in range(num_cancellations):
        running.cancel()
        await asyncio.sleep(0)
    assert not running.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sorted(builder.closed) == [(member, 0) for member in range(4)]
    assert asyncio.all_tasks() == before


async def test_an_environment_that_never_closes_does_not_hold_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches a Ctrl-C that waits for ever behind a container that does not answer.
    monkeypatch.setattr(closing, "CLOSE_SECONDS", 0.01)

    async def hang(at: str, member: int, _attempt: int) -> None:
        if (at, member) == ("close", 1):
            await asyncio.Event().wait()

    builder = ScriptedBuilder(fail=hang)
    group = await do_group_rollout(builder, FakeSampler(), seed=0)
    assert [(f.member, f.outcome) for f in group.failures] == [(1, "kept")]
    assert "0.01 seconds" in group.failures[0].reason
    assert sorted(builder.closed) == [(0, 0), (2, 0), (3, 0)]


# ---------------------------------------------------------------------- members that play with each other


def failing_beside_a_waiting_partner(where: str, *, attempts: int = 1) -> Fail:
    """Member 2 fails at one place in its first attempts; until then member 3 waits for it, and would do so for ever."""

    async def fail(at: str, member: int, attempt: int) -> None:
        if at == where and attempt < attempts:
            if member == 2:
                await asyncio.sleep(0)
                raise ValueError("broken")
            if member == 3:
                await asyncio.Event().wait()

    return fail


@pytest.mark.parametrize("where", ["initial_observation", "step", "last_step"])
async def test_players_of_one_game_are_attempted_again_together(where: str) -> None:
    # Catches a retry at a table whose other player never moves, and one who waits for a player that has failed.
    builder = CoupledScriptedBuilder(group_size=5, num_turns=2, fail=failing_beside_a_waiting_partner(where))
    async with asyncio.timeout(10):
        group = await do_group_rollout(builder, FakeSampler(), seed=0, strategy=retry(2))
    assert [m["member"] for m in group.group_metrics_G] == [0, 1, 2, 3, 4]
    assert [(f.member, f.attempt, f.origin, f.outcome) for f in group.failures] == [
        (2, 0, "env", "retried"),
        (3, 0, "partner", "retried"),
    ]
    assert builder.num_made == 2, "both are of one `make_envs`"
    assert failure_metrics([group])["rollouts/failures/env"] == 1


@pytest.mark.parametrize("where", ["initial_observation", "step"])
async def test_players_of_one_game_are_dropped_together_at_once(where: str) -> None:
    # Catches a partner that waits out its patience, and a game of one player that is trained on.
    def builder() -> ScriptedBuilder:
        return CoupledScriptedBuilder(group_size=5, fail=failing_beside_a_waiting_partner(where))

    async with asyncio.timeout(10):
        group = await do_group_rollout(builder(), FakeSampler(), seed=0, strategy=minimum_viable(3))
    assert [m["member"] for m in group.group_metrics_G] == [0, 1, 4]
    assert failure_metrics([group])["rollouts/dropped"] == 2
    with pytest.raises(
        GroupFailedError, match=r"env, member 2, attempt 1: ValueError: broken \(.*test_group.py, line \d+\)$"
    ):
        await do_group_rollout(builder(), FakeSampler(), seed=0, strategy=minimum_viable(4))


async def test_what_a_player_finished_goes_with_its_game() -> None:
    # Catches a trajectory of the first attempt beside one of the second: they are of different games.
    async def fail(at: str, member: int, attempt: int) -> None:
        if (at, member, attempt) == ("last_step", 1, 0):
            for _ in range(20):
                await asyncio.sleep(0)
            raise ValueError("broken")

    builder = CoupledScriptedBuilder(fail=fail)
    sampler = FakeSampler()
    group = await do_group_rollout(builder, sampler, seed=0, strategy=retry(2))
    assert [(r.num_samples, r.seed) for r in sampler.requests] == [
        (4, derive_seed(0, 0, 0)),
        (2, derive_seed(0, 0, 0, 1)),
    ]
    assert len(group.trajectories_G) == 4
    assert [f.member for f in group.failures] == [0, 1]
    dropped = await do_group_rollout(
        CoupledScriptedBuilder(fail=fail), FakeSampler(), seed=0, strategy=minimum_viable(2)
    )
    assert [m["member"] for m in dropped.group_metrics_G] == [2, 3]


async def test_a_game_that_was_given_up_is_not_begun_by_an_answer_that_comes_late() -> None:
    # Catches a player of the first attempt that starts, and waits, once its request is answered after all.
    released = asyncio.Event()
    steps: list[tuple[int, int]] = []

    async def gate(number: int) -> None:
        if number == 3:  # member 3, whose partner fails meanwhile
            await released.wait()
        if number == 5:  # the second attempt is under way
            released.set()

    async def fail(at: str, member: int, attempt: int) -> None:
        if at == "step":
            steps.append((member, attempt))
            if (member, attempt) == (2, 0):
                raise ValueError("broken")

    builder = CoupledScriptedBuilder(fail=fail, prompt_of=lambda member: [member + 1])
    async with asyncio.timeout(10):
        group = await do_group_rollout(builder, FakeSampler(gate=gate), seed=0, strategy=retry(2))
    assert len(group.trajectories_G) == 4
    assert sorted(steps) == [(0, 0), (1, 0), (2, 0), (2, 1), (3, 1)]


@pytest.mark.parametrize("parts", [[(0, 1), (1, 2)], [(0, 9)]])
async def test_a_builder_that_couples_wrongly_is_told(
    monkeypatch: pytest.MonkeyPatch, parts: Sequence[Sequence[int]]
) -> None:
    monkeypatch.setattr(CoupledScriptedBuilder, "coupled_members", lambda _: parts)
    with pytest.raises(GroupFailedError, match="of 4 members; each may be named once"):
        await do_group_rollout(CoupledScriptedBuilder(), FakeSampler(), seed=0)


# ---------------------------------------------------------------------- notes


async def test_what_is_noted_belongs_to_its_turn_and_member() -> None:
    # Catches notes that mix between members that play at once, or that are lost or doubled where one is attempted anew.
    async def say(where: str, member: int, attempt: int) -> None:
        with scope(where):
            await asyncio.sleep(0.001 * random.random())
            note(f"{member}.{attempt}")
        if (where, member, attempt) == ("step", 1, 0):
            raise ValueError("broken step")

    builder = ScriptedBuilder(group_size=3, num_turns=2, fail=say)
    group = await do_group_rollout(builder, FakeSampler(), seed=0, strategy=retry(2))
    for member, trajectory in enumerate(group.trajectories_G):
        told = [Note(text=f"{member}.{1 if member == 1 else 0}")]
        first, second = (turn.entries for turn in trajectory.transitions)
        assert first == [Scope(title="initial_observation", entries=told), Scope(title="step", entries=told)]
        assert second == [Scope(title="step", entries=told), Scope(title="last_step", entries=told)]
    assert [entry.title for entry in group.entries if isinstance(entry, Scope)] == [
        "make_envs",
        "make_envs",
        "group_rewards",
    ]


# ---------------------------------------------------------------------- size


async def test_2000_rollouts_at_once_are_small() -> None:
    # All of them wait in their last turn at the same time, which is when most is alive.
    num_waiting, all_wait, release = 0, asyncio.Event(), asyncio.Event()

    async def hold(where: str, _member: int, _attempt: int) -> None:
        nonlocal num_waiting
        if where == "last_step":
            num_waiting += 1
            if num_waiting == 2000:
                all_wait.set()
            await release.wait()

    builders = [ScriptedBuilder(group_size=8, num_turns=2, fail=hold) for _ in range(250)]
    gc.collect()
    tracemalloc.start()
    try:
        tasks: list[asyncio.Task[TrajectoryGroup]] = [
            asyncio.create_task(do_group_rollout(builder, FakeSampler(), seed=i)) for i, builder in enumerate(builders)
        ]
        await all_wait.wait()
        _, peak_bytes = tracemalloc.get_traced_memory()
        release.set()
        groups = await asyncio.gather(*tasks)
    finally:
        tracemalloc.stop()
    assert sum(len(group.trajectories_G) for group in groups) == 2000
    assert peak_bytes < 64e6
