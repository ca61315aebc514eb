"""The supervised workflow: conversations in, an adapter out."""

from functools import partial

import tinker

from cookhouse.callables.arguments import checked
from cookhouse.data.batches.stream import StreamedBatch
from cookhouse.settings import SupervisedSettings
from cookhouse.training import (
    Assembled,
)
from cookhouse.workflows.base.counts import batch_metrics
from cookhouse.workflows.base.evaluation import init_evaluators
from cookhouse.workflows.base.rows import sources_of
from cookhouse.workflows.base.slots import BATCHED, batch_source, log_slot, objective_slot
from cookhouse.workflows.base.summary import training_result
from cookhouse.workflows.base.tokenizer import init_tokenizer
from cookhouse.workflows.base.workflow import training_workflow
from cookhouse.workflows.stages.stage import SlotStage
from cookhouse.workflows.stages.workflow import Workflow
from cookhouse.workflows.supervised.data_stages import build_supervised_dataset, load_dataset, preview
from cookhouse.workflows.supervised.session_stage import init_session
from cookhouse.workflows.supervised.state import Batch, SupervisedState
from cookhouse.workflows.supervised.summary import facts, figures


async def _assemble(batch: Batch | list[Batch]) -> Assembled[None]:
    """The datums of a batch, or of the batches of several sets; with figures of what is streamed."""
    if isinstance(batch, StreamedBatch):
        metrics = batch_metrics(batch.statistics, batch.num_skipped)
        return Assembled(data_D=batch.data_D, payload=None, metrics=metrics)
    parts = [await _assemble(part) for part in batch if not isinstance(part, tinker.Datum)]
    if not parts:
        return Assembled(data_D=[datum for datum in batch if isinstance(datum, tinker.Datum)], payload=None)
    names = dict.fromkeys(name for part in parts for name in part.metrics)
    return Assembled(
        data_D=[datum for part in parts for datum in part.data_D],
        payload=None,
        metrics={name: sum(part.metrics.get(name, 0.0) for part in parts) for name in names},
    )


@checked
def supervised_workflow(config: SupervisedSettings) -> Workflow[SupervisedState]:
    """The stages of a supervised run."""
    return training_workflow(
        name="supervised",
        state_class=SupervisedState,
        start=lambda context: SupervisedState(context=context, config=config),
        setup=(load_dataset, init_tokenizer, build_supervised_dataset, init_evaluators, init_session),
        get_work=SlotStage(name="get_batch", make=lambda state: batch_source(state, _assemble), reads=BATCHED),
        forward_backward=objective_slot("forward_backward"),
        log=log_slot("log_step_metrics"),
        result=partial(training_result, figures),
        facts=facts,
        previews=preview,
        data_files=sources_of(config, "conversations"),
    )
