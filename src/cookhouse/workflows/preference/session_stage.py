"""The stage of a run over preferences that opens its folder, its session, its reference and its judge."""

from functools import partial

from cookhouse.envs import SecondModels, open_preference_model
from cookhouse.errors import InputError
from cookhouse.training import (
    Cadence,
    ScheduledEvaluation,
    service_errors,
)
from cookhouse.workflows.base.evaluation import keep_noted, scheduled_evaluators
from cookhouse.workflows.base.run import open_run
from cookhouse.workflows.base.second_model import open_sampler
from cookhouse.workflows.preference.evaluation import AnswerJudge, PairEvaluation
from cookhouse.workflows.preference.objective import pair_objective
from cookhouse.workflows.preference.reference_weights import open_reference
from cookhouse.workflows.preference.state import PreferenceState
from cookhouse.workflows.preference.stream import StreamedPairs
from cookhouse.workflows.stages.stage import stage


@stage(
    doing="loading the model",
    reads=("config", "dataset", "held_out", "answers", "notes", "total_steps", "evaluators"),
    writes=("folder", "checkpoints", "cursor", "session", "objective", "reference", "judge", "evaluations"),
    needs=("service",),
    uses=("completer",),
)
async def init_session(state: PreferenceState) -> None:
    """Open the run directory and then the session: fresh, from weights, or where a checkpoint of the folder left off;
    and the reference. A loss that the service has is computed there.
    """
    await open_run(state)
    _refuse_longer(state)
    adapters = state.context.adapters
    with service_errors("asking which losses the service has"):
        offered = await state.session.service.pair_losses()
    offer = offered if state.config.pair_loss in offered.names else None
    state.objective = pair_objective(state.config, offer, with_logprobs=state.config.num_shown_examples > 0)
    state.reference = await open_reference(state.config, state.session, state.folder, adapters.registry, offer)
    state.judge = await _open_judge(state)
    state.evaluations += _held_out(state) + scheduled_evaluators(
        state.evaluators, state.telemetry, state.folder.evaluations
    )


async def _open_judge(state: PreferenceState) -> AnswerJudge | None:
    """Who compares held-out answers, where somebody is named and there are some."""
    if state.config.preference_model is None or state.answers is None:
        return None
    adapters = state.context.adapters
    models = SecondModels(lambda name: open_sampler(state.session.service, name, adapters.registry), adapters.completer)
    return AnswerJudge(
        await open_preference_model(state.config, models),
        read_initial=partial(state.folder.read_answers, 0),
        keep=partial(keep_noted, state.folder.evaluations, "answers", "Held-out answers"),
    )


def _refuse_longer(state: PreferenceState) -> None:
    """What a service takes is known once the session is open, and may be less than the model could."""
    limit = state.session.context_tokens
    longest = max(pair.longest_tokens for pair in [*state.dataset.pairs, *state.held_out])
    if isinstance(state.dataset, StreamedPairs) and limit is not None and longest <= limit:
        state.dataset.cut_to(limit)  # what is longer than all of the sample
    if state.answers is not None:
        longest = max(longest, state.answers.longest_tokens)
    if limit is not None and longest > limit:
        raise InputError(
            f"{state.config.model_name} takes {limit:,} tokens at this service, and the longest prompt with an answer "
            f"has {longest:,}; set max_length={limit}, and eval_max_tokens or num_eval lower"
        )


def _held_out(state: PreferenceState) -> list[ScheduledEvaluation]:
    if not state.held_out:
        return []
    evaluation = PairEvaluation(
        pairs=state.held_out,
        answers=state.answers,
        judge=state.judge,
        reference=state.reference,
        settings=state.config,
        telemetry=state.telemetry,
        keep=state.folder.write_answers,
    )
    cadence = Cadence(every=state.config.eval_every, at_start=state.config.eval_at_start)
    return [ScheduledEvaluation(name="held out", evaluation=evaluation, cadence=cadence)]
