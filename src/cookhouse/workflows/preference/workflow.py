"""The preference workflow: pairs of answers in, an adapter that prefers as they do out."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from cookhouse.envs import SecondModels, open_preference_model
from cookhouse.errors import InputError
from cookhouse.registry import Descent
from cookhouse.settings import PreferenceSettings
from cookhouse.telemetry import events
from cookhouse.training import (
    Assembled,
    BatchSource,
    Cadence,
    ScheduledEvaluation,
    service_errors,
)
from cookhouse.workflows.base.counts import batch_metrics
from cookhouse.workflows.base.evaluation import init_evaluators, keep_noted, scheduled_evaluators
from cookhouse.workflows.base.preference_model import check_preference_model
from cookhouse.workflows.base.rows import sources_of
from cookhouse.workflows.base.run import open_run
from cookhouse.workflows.base.second_model import open_sampler
from cookhouse.workflows.base.slots import BATCHED, batch_source, log_slot, objective_slot
from cookhouse.workflows.base.tokenizer import init_tokenizer
from cookhouse.workflows.base.workflow import training_workflow
from cookhouse.workflows.preference.assembler import PairAssembler, PairPayload
from cookhouse.workflows.preference.data_stages import build_preference_dataset, load_dataset, preview
from cookhouse.workflows.preference.dataset import Pair
from cookhouse.workflows.preference.evaluation import AnswerJudge, PairEvaluation
from cookhouse.workflows.preference.objective import pair_objective
from cookhouse.workflows.preference.reference import open_reference
from cookhouse.workflows.preference.state import PreferenceState
from cookhouse.workflows.preference.stream import StreamedPairBatch, StreamedPairs
from cookhouse.workflows.preference.summary import facts, preference_result
from cookhouse.workflows.stages.stage import SlotStage, stage
from cookhouse.workflows.stages.workflow import Workflow


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
    """Judge of held-out answers, where one is named and there are some."""
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
    """Refuse examples longer than the service takes, which is known once the session is open."""
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


Batch: TypeAlias = Sequence[Pair] | StreamedPairBatch


def _source(state: PreferenceState) -> BatchSource[Batch, PairPayload]:
    pairs = PairAssembler(state.reference, state.telemetry)

    async def assemble(batch: Batch) -> Assembled[PairPayload]:
        if not isinstance(batch, StreamedPairBatch):
            return await pairs(batch)
        return replace(await pairs(batch.pairs), metrics=batch_metrics(batch.statistics, batch.num_skipped))

    return batch_source(state, assemble)


def preference_workflow(config: PreferenceSettings) -> Workflow[PreferenceState]:
    """The stages of a run over preferences."""
    return training_workflow(
        name="preference",
        state_class=PreferenceState,
        start=lambda context: PreferenceState(context=context, config=config),
        setup=(
            check_preference_model,
            load_dataset,
            init_tokenizer,
            build_preference_dataset,
            init_evaluators,
            init_session,
        ),
        get_work=SlotStage(
            name="get_preference_batch",
            make=_source,
            reads=("reference", *BATCHED),
            parts=("compute_reference_logprobs",),
        ),
        forward_backward=objective_slot("dpo_forward_backward"),
        log=log_slot("log_dpo_metrics", event=events.DPO_STEP),
        descent=Descent.DPO_TRAINED_FROM,
        result=preference_result,
        facts=facts,
        previews=preview,
        data_files=sources_of(config, "preferences"),
    )
