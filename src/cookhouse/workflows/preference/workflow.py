"""The preference workflow: pairs of answers in, an adapter that prefers as they do out."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from cookhouse.registry import Descent
from cookhouse.settings import PreferenceSettings
from cookhouse.telemetry import events
from cookhouse.training import (
    Assembled,
    BatchSource,
)
from cookhouse.workflows.base.counts import batch_metrics
from cookhouse.workflows.base.evaluation import init_evaluators
from cookhouse.workflows.base.preference_model import check_preference_model
from cookhouse.workflows.base.rows import sources_of
from cookhouse.workflows.base.slots import BATCHED, batch_source, log_slot, objective_slot
from cookhouse.workflows.base.tokenizer import init_tokenizer
from cookhouse.workflows.base.workflow import training_workflow
from cookhouse.workflows.preference.assembler import PairAssembler, PairPayload
from cookhouse.workflows.preference.data_stages import build_preference_dataset, load_dataset, preview
from cookhouse.workflows.preference.dataset import Pair
from cookhouse.workflows.preference.session_stage import init_session
from cookhouse.workflows.preference.state import PreferenceState
from cookhouse.workflows.preference.stream import StreamedPairBatch
from cookhouse.workflows.preference.summary import facts, preference_result
from cookhouse.workflows.stages.stage import SlotStage
from cookhouse.workflows.stages.workflow import Workflow

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
