"""Supervised fine-tuning: conversations, rendered to tokens, batches of datums, cross-entropy of the answers' tokens."""

from collections.abc import Sequence

import tinker

from cookhouse.algorithms.base.counts import batch_metrics
from cookhouse.algorithms.base.evaluation import HeldOutEvaluation, NamedEvaluator, init_evaluators
from cookhouse.algorithms.base.loop import batch_source, log_slot, objective_slot, training_loop
from cookhouse.algorithms.base.rows import sources_of
from cookhouse.algorithms.base.run import open_run, refuse_longer, scheduled
from cookhouse.algorithms.base.state import OpenedRun, Steps
from cookhouse.algorithms.base.tokenizer import init_tokenizer
from cookhouse.algorithms.base.workflow import training_workflow
from cookhouse.algorithms.stages.stage import stage
from cookhouse.algorithms.stages.state import RunContext
from cookhouse.algorithms.stages.workflow import Workflow
from cookhouse.callables.arguments import checked
from cookhouse.data import MixedDataset, StreamedDataset
from cookhouse.data.batches.stream import StreamedBatch
from cookhouse.settings import SupervisedSettings
from cookhouse.telemetry import events, keys
from cookhouse.training import Assembled, BatchSource, ScheduledEvaluation
from cookhouse.workflows.supervised.dataset import build_supervised_dataset, load_dataset
from cookhouse.workflows.supervised.state import Batch, SupervisedState, Tokenized


@stage(doing="loading the model", needs=("service",))
async def init_session(
    context: RunContext,
    config: SupervisedSettings,
    tokenized: Tokenized,
    steps: Steps,
    evaluators: Sequence[NamedEvaluator],
) -> tuple[OpenedRun, list[ScheduledEvaluation]]:
    """Open the run directory and then the session: fresh, from weights, or where a checkpoint left off."""
    opened = await open_run(context, config, steps, evaluators)
    context.telemetry.event(events.DATA_COUNTS, text=str(tokenized.counts))
    limit, longest = opened.session.context_tokens, tokenized.counts.statistics.longest_tokens
    dataset = tokenized.dataset
    for part in dataset.parts if isinstance(dataset, MixedDataset) else [dataset]:
        if isinstance(part, StreamedDataset) and limit is not None and longest <= limit:
            part.cut_to(limit)  # what is longer than all of the sample
    held_out = [each.longest_tokens for each in (tokenized.nll, tokenized.exact_match) if each is not None]
    what = "example, or held-out prompt with its answer,"
    refuse_longer(config, opened, max([longest, *held_out]), what, ", and eval_max_tokens or num_eval lower")
    return opened, scheduled(context, config, opened, evaluators, _held_out(context, config, tokenized, opened))


def _held_out(
    context: RunContext, config: SupervisedSettings, tokenized: Tokenized, opened: OpenedRun
) -> HeldOutEvaluation | None:
    if tokenized.nll is None:
        return None
    return HeldOutEvaluation(
        nll=tokenized.nll,
        exact_match=tokenized.exact_match,
        loss_alone_at=config.pause_at_step if config.pause_metric == keys.TEST_NLL else None,
        telemetry=context.telemetry,
        keep=opened.folder.write_answers,
    )


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


@stage()
def get_batch(tokenized: Tokenized, steps: Steps, opened: OpenedRun) -> BatchSource[Batch | list[Batch], None]:
    """The batches, one prepared ahead."""
    return batch_source(tokenized.dataset, _assemble, steps, opened)


@checked
def supervised_workflow(config: SupervisedSettings) -> Workflow[SupervisedState]:
    """The stages of a supervised run."""
    return training_workflow(
        name="supervised",
        state_class=SupervisedState,
        inputs={"config": config},
        setup=(load_dataset, init_tokenizer, build_supervised_dataset, init_evaluators, init_session),
        loop=training_loop(
            get_work=get_batch,
            forward_backward=objective_slot("forward_backward"),
            log=log_slot("log_step_metrics"),
        ),
        data_files=sources_of(config, "conversations"),
    )
