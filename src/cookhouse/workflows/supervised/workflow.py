"""The supervised workflow: conversations in, an adapter out; and its summary."""

from collections.abc import Mapping
from functools import partial

import tinker

from cookhouse.callables.arguments import checked
from cookhouse.data import (
    MixedDataset,
    StreamedDataset,
)
from cookhouse.data.batches.stream import StreamedBatch
from cookhouse.errors import InputError, printable
from cookhouse.runs import Figure
from cookhouse.settings import SupervisedSettings
from cookhouse.telemetry import events, keys
from cookhouse.training import (
    Assembled,
    Cadence,
    ScheduledEvaluation,
)
from cookhouse.workflows.base.counts import batch_metrics
from cookhouse.workflows.base.evaluation import HeldOutEvaluation, init_evaluators, scheduled_evaluators
from cookhouse.workflows.base.rows import sources_of
from cookhouse.workflows.base.run import open_run
from cookhouse.workflows.base.slots import BATCHED, batch_source, log_slot, objective_slot
from cookhouse.workflows.base.summary import adapter_size, context_fact, model_fact, training_result
from cookhouse.workflows.base.tokenizer import init_tokenizer
from cookhouse.workflows.base.workflow import training_workflow
from cookhouse.workflows.stages.stage import SlotStage, stage
from cookhouse.workflows.stages.workflow import Workflow
from cookhouse.workflows.supervised.data_stages import build_supervised_dataset, load_dataset, preview
from cookhouse.workflows.supervised.state import Batch, SupervisedState


@stage(
    doing="loading the model",
    reads=("config", "dataset", "counts", "notes", "nll", "exact_match", "total_steps", "evaluators"),
    writes=("folder", "checkpoints", "cursor", "session", "evaluations"),
    needs=("service",),
)
async def init_session(state: SupervisedState) -> None:
    """Open the run directory and then the session: fresh, from weights, or where a checkpoint left off."""
    await open_run(state)
    state.telemetry.event(events.DATA_COUNTS, text=str(state.counts))
    _refuse_longer(state)
    named = scheduled_evaluators(state.evaluators, state.telemetry, state.folder.evaluations)
    state.evaluations += _held_out(state) + named


def _refuse_longer(state: SupervisedState) -> None:
    """Refuse examples longer than the service takes, which is known once the session is open."""
    limit = state.session.context_tokens
    longest = state.counts.statistics.longest_tokens
    for part in state.dataset.parts if isinstance(state.dataset, MixedDataset) else [state.dataset]:
        if isinstance(part, StreamedDataset) and limit is not None and longest <= limit:
            part.cut_to(limit)  # what is longer than all of the sample
    held_out = [each.longest_tokens for each in (state.nll, state.exact_match) if each is not None]
    longest = max([longest, *held_out])
    if limit is not None and longest > limit:
        raise InputError(
            f"{state.config.model_name} takes {limit:,} tokens at this service, and the longest example, or held-out "
            f"prompt with its answer, has {longest:,}; set max_length={limit}, and eval_max_tokens or num_eval lower"
        )


def _held_out(state: SupervisedState) -> list[ScheduledEvaluation]:
    if state.nll is None:
        return []
    evaluation = HeldOutEvaluation(
        nll=state.nll,
        exact_match=state.exact_match,
        loss_alone_at=state.config.pause_at_step if state.config.pause_metric == keys.TEST_NLL else None,
        telemetry=state.telemetry,
        keep=state.folder.write_answers,
    )
    cadence = Cadence(every=state.config.eval_every, at_start=state.config.eval_at_start)
    return [ScheduledEvaluation(name="held out", evaluation=evaluation, cadence=cadence)]


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
        result=partial(training_result, _figures),
        facts=_facts,
        previews=preview,
        data_files=sources_of(config, "conversations"),
    )


_Row = Mapping[str, float]


def _figures(first: _Row, last: _Row, after: _Row) -> tuple[Figure, ...]:
    """Held-out loss and exact match, and the last training loss."""
    return (
        Figure(
            name=keys.TEST_NLL,
            label="held-out loss (nats per token)",
            before=first.get(keys.TEST_NLL),
            after=after.get(keys.TEST_NLL),
        ),
        Figure(
            name=keys.TEST_EXACT_MATCH,
            label="held-out exact match",
            before=first.get(keys.TEST_EXACT_MATCH),
            after=after.get(keys.TEST_EXACT_MATCH),
            is_share=True,
        ),
        *(
            Figure(name=name, label=f"held-out {label}", before=first.get(name), after=after[name], is_share=True)
            for name, label in ((keys.TEST_ACCURACY, "accuracy"), (keys.TEST_F1, "F1"))
            if name in after
        ),
        Figure(
            name=keys.TRAIN_LOSS,
            label="training loss of the last step",
            before=None,
            after=last.get(keys.TRAIN_LOSS),
        ),
    )


def _held_out_in_words(state: SupervisedState) -> str:
    num_asked, num_all = len(state.test), state.data.num_held_out
    is_part = num_asked == state.config.num_eval < num_all
    return f"{num_all:,} held out, of which {num_asked:,} are evaluated on" if is_part else f"{num_asked:,} held out"


def _facts(state: SupervisedState) -> dict[str, str]:
    """Facts of a dry run: conversations, tokens, steps, and the adapter."""
    config, counts = state.config, state.counts
    found = counts.statistics
    read = state.train if counts.num_sampled is None else ()
    unread = sorted({str(name) for conversation in read for name in conversation.extra})
    about = "" if counts.num_sampled is None else "about "
    estimate = {} if counts.num_sampled is None else {"estimated from": f"{counts.num_sampled:,} rows"}
    return {
        "model": model_fact(config.model_name),
        "tokenizer": config.model_name,
        "renderer": config.renderer_name,
        "conversations": f"{len(state.train):,} to train on, {_held_out_in_words(state)}",
        **({"unused fields": printable(", ".join(unread))} if unread else {}),
        "examples": f"{about}{found.num_examples:,}, of which {found.num_truncated:,} are truncated",
        "tokens": f"{about}{found.num_tokens:,}, of which {found.num_trained_tokens:,} ({found.trained_share:.1%}) are "
        "trained on",
        **estimate,
        "context": context_fact(state.context_tokens),
        "longest example": f"{found.longest_tokens:,} tokens",
        "steps": f"{state.total_steps:,} in all, {state.steps_per_epoch:,} per epoch",
        "adapter": adapter_size(config),
    }
