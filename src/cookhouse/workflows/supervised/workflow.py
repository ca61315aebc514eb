"""Supervised fine-tuning: conversations to tokens, batches of datums, cross-entropy of the tokens of the answers."""

from collections.abc import Sequence
from dataclasses import replace

import tinker

from cookhouse import algorithms as alg
from cookhouse.callables.arguments import checked
from cookhouse.data import MixedDataset, StreamedBatch, StreamedDataset
from cookhouse.settings import SupervisedSettings
from cookhouse.telemetry import events, keys
from cookhouse.workflows.supervised.dataset import build_supervised_dataset, load_dataset
from cookhouse.workflows.supervised.rows import messages_of
from cookhouse.workflows.supervised.state import Batch, SupervisedState, Tokenized


@alg.stage(doing="loading the model", needs=("service",))
async def init_session(
    context: alg.RunContext,
    config: SupervisedSettings,
    tokenized: Tokenized,
    steps: alg.Steps,
    evaluators: Sequence[alg.NamedEvaluator],
) -> tuple[alg.OpenedRun, list[alg.ScheduledEvaluation]]:
    """Open the run directory and then the session: fresh, from weights, or where a checkpoint left off."""
    opened = await alg.open_run(context, config, steps, evaluators)
    if tokenized.exact_match is not None and not tokenized.exact_match.is_telling:
        opened.folder.run_json.declare(replace(keys.BUILT_IN[keys.TEST_EXACT_MATCH], headline=None))
    context.telemetry.event(events.DATA_COUNTS, text=str(tokenized.counts))
    limit, longest = opened.session.context_tokens, tokenized.counts.statistics.longest_tokens
    dataset = tokenized.dataset
    for part in dataset.parts if isinstance(dataset, MixedDataset) else [dataset]:
        if isinstance(part, StreamedDataset) and limit is not None and longest <= limit:
            part.cut_to(limit)  # what is longer than all of the sample
    held_out = [each.longest_tokens for each in (tokenized.nll, tokenized.exact_match) if each is not None]
    what = "example, or held-out prompt with its answer,"
    alg.refuse_longer(config, opened, max([longest, *held_out]), what, ", and eval_max_tokens or num_eval lower")
    return opened, alg.scheduled(context, config, opened, evaluators, _held_out(context, config, tokenized, opened))


def _held_out(
    context: alg.RunContext, config: SupervisedSettings, tokenized: Tokenized, opened: alg.OpenedRun
) -> alg.HeldOutEvaluation | None:
    if tokenized.nll is None:
        return None
    return alg.HeldOutEvaluation(
        nll=tokenized.nll,
        exact_match=tokenized.exact_match,
        loss_alone_at=config.pause_at_step if config.pause_metric == keys.TEST_NLL else None,
        telemetry=context.telemetry,
        keep=opened.folder.write_answers,
    )


async def _assemble(batch: Batch | list[Batch]) -> alg.Assembled[None]:
    """The datums of a batch, or of the batches of several sets; with figures of what is streamed."""
    if isinstance(batch, StreamedBatch):
        metrics = alg.batch_metrics(batch.statistics, batch.num_skipped)
        return alg.Assembled(data_D=batch.data_D, payload=None, metrics=metrics)
    parts = [await _assemble(part) for part in batch if not isinstance(part, tinker.Datum)]
    if not parts:
        return alg.Assembled(data_D=[datum for datum in batch if isinstance(datum, tinker.Datum)], payload=None)
    names = dict.fromkeys(name for part in parts for name in part.metrics)
    return alg.Assembled(
        data_D=[datum for part in parts for datum in part.data_D],
        payload=None,
        metrics={name: sum(part.metrics.get(name, 0.0) for part in parts) for name in names},
    )


@alg.stage()
def get_batch(
    tokenized: Tokenized, steps: alg.Steps, opened: alg.OpenedRun
) -> alg.BatchSource[Batch | list[Batch], None]:
    """The batches, one prepared ahead."""
    return alg.batch_source(tokenized.dataset, _assemble, steps, opened)


@checked
def supervised_workflow(config: SupervisedSettings) -> alg.Workflow[SupervisedState]:
    """The stages of a supervised run."""
    return alg.training_workflow(
        name="supervised",
        state_class=SupervisedState,
        inputs={"config": config},
        setup=(load_dataset, alg.init_tokenizer, build_supervised_dataset, alg.init_evaluators, init_session),
        loop=alg.training_loop(
            get_work=get_batch,
            forward_backward=alg.objective_slot("forward_backward"),
            log=alg.log_slot("log_step_metrics"),
        ),
        data_files=alg.sources_of(config, "conversations", messages_of(config)),
    )
