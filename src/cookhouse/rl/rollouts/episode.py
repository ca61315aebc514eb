"""One episode: the model acts, the environment answers, until either ends it or a limit does."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import tinker

from cookhouse.callables.blocking import watched
from cookhouse.callables.returned import refused
from cookhouse.errors import CookhouseError, InputError, ServiceError, where_raised
from cookhouse.rl.env.env import Env, SelfLimited, StepResult
from cookhouse.rl.env.returned_step import ReturnedStep, returned_step
from cookhouse.rl.sampling.sampler import GroupSampler, StopCondition, TokensWithLogprobs
from cookhouse.rl.trajectory import Trajectory, Transition, observed_tokens
from cookhouse.settings import RolloutLimits
from cookhouse.telemetry import Entry, Recording

Origin = Literal["env", "sampling"]
NO_LIMITS = RolloutLimits()


class AttemptFailedError(Exception):
    """An exception of the environment or the sampler (the cause), attributed."""

    def __init__(self, origin: Origin, cause: BaseException) -> None:
        where = "" if isinstance(cause, CookhouseError) else f" ({where_raised(cause)})"
        super().__init__(f"{type(cause).__name__}: {cause}{where if origin == 'env' else ''}")
        self.origin = origin


@contextmanager
def attributed_to(origin: Origin) -> Iterator[None]:
    """Whatever the body raises becomes an `AttemptFailedError` of `origin`; cancellation of the task passes."""
    try:
        yield
    except Exception as error:
        raise AttemptFailedError(origin, error) from error
    except asyncio.CancelledError as error:
        # A future that somebody else cancelled raises this too, and a task group would take the member for done.
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise AttemptFailedError(origin, error) from error


async def sample_actions(
    sampler: GroupSampler,
    observation: tinker.ModelInput,
    stop: StopCondition,
    *,
    num_samples: int,
    max_tokens: int | None,
    seed: int,
) -> Sequence[TokensWithLogprobs]:
    """One request. Raises `AttemptFailedError` of `sampling`."""
    with attributed_to("sampling"):
        actions = await sampler.sample(observation, stop, num_samples=num_samples, max_tokens=max_tokens, seed=seed)
        if len(actions) != num_samples:
            raise ServiceError(f"the sampler was asked for {num_samples} samples and gave {len(actions)}")
        if not all(action.tokens for action in actions):
            raise ServiceError("the sampler gave a sample without tokens")
    return actions


def first_tokens_left(env: Env, observation: tinker.ModelInput, limits: RolloutLimits) -> int | None:
    """Tokens that the first action may have. Raises `InputError` if the prompt leaves none, or holds an image."""
    observed_tokens(observation)
    left = tokens_left(env, observation, limits)
    if left is not None and left < 1:
        raise InputError(
            f"the first observation has {observation.length} tokens and max_sequence_tokens is "
            f"{limits.max_sequence_tokens}; raise the limit or shorten the prompt"
        )
    return left


def tokens_left(env: Env, observation: tinker.ModelInput, limits: RolloutLimits) -> int | None:
    """Tokens that may follow an observation; None without a limit."""
    if isinstance(env, SelfLimited):
        return env.max_action_tokens
    return None if limits.max_sequence_tokens is None else limits.max_sequence_tokens - observation.length


async def play(
    env: Env,
    sampler: GroupSampler,
    observation: tinker.ModelInput,
    first_action: TokensWithLogprobs,
    *,
    stop: StopCondition,
    limits: RolloutLimits,
    seed_of_turn: Callable[[int], int],
    recording: Recording,
) -> Trajectory:
    """The episode that follows the first action, sampled up to `stop`; each turn has what was noted by then. Raises
    `AttemptFailedError`.
    """
    transitions: list[Transition] = []
    action = first_action
    num_tool_calls = 0
    for turn in itertools.count(1):
        with attributed_to("env"):
            with recording.active():
                if isinstance(env, SelfLimited):
                    env.sampled(action)
                result = await watched(env.step, _closed(action, stop))
            step = returned_step(env.step, result, StepResult)
            transitions.append(_transition(observation, action, step, recording.drain()))
            observation = kept_observation(env.step, result.next_observation)
        num_tool_calls += step.num_tool_calls
        left = tokens_left(env, observation, limits)
        kept = NO_LIMITS if isinstance(env, SelfLimited) else limits
        stop_reason = _stop_reason(step, left, kept, num_turns=turn, num_tool_calls=num_tool_calls)
        if stop_reason is not None:
            return Trajectory(transitions=transitions, final_observation=observation, stop_reason=stop_reason)
        stop = result.next_stop_condition
        [action] = await sample_actions(
            sampler,
            observation,
            stop,
            num_samples=1,
            max_tokens=left,
            seed=seed_of_turn(turn),
        )
    raise AssertionError("an endless count ended")


def _closed(action: TokensWithLogprobs, stop: StopCondition) -> list[int]:
    """The action as the environment reads it: one that a grammar ended has the stop token that was not sampled. The
    record of the action does not, so that a next observation that goes on from it has the token as context.
    """
    closing = [one for one in stop[:1] if isinstance(one, int)] if action.is_grammar_end else []
    return [*action.tokens, *closing]


def kept_observation(function: Callable[..., Any], observation: object) -> tinker.ModelInput:
    """A copy of what an environment shows, whose own may grow. Raises `InputError` if it is no text."""
    if not isinstance(observation, tinker.ModelInput):
        raise refused(function, observation, "it must be a tinker.ModelInput", "the observation ")
    observed_tokens(observation)
    return observation.model_copy(deep=True)


def _transition(
    observation: tinker.ModelInput, action: TokensWithLogprobs, step: ReturnedStep, entries: Sequence[Entry]
) -> Transition:
    return Transition(
        observation=observation,
        action=action,
        reward=step.reward,
        episode_done=step.episode_done,
        metrics=step.metrics,
        logs=step.logs,
        entries=entries,
    )


def _stop_reason(
    step: ReturnedStep, left: int | None, limits: RolloutLimits, *, num_turns: int, num_tool_calls: int
) -> str | None:
    if step.episode_done:
        return "done"
    if limits.max_turns is not None and num_turns >= limits.max_turns:
        return "max_turns"
    if limits.max_tool_calls is not None and num_tool_calls > limits.max_tool_calls:
        return "max_tool_calls"
    return "max_tokens" if left is not None and left < 1 else None
