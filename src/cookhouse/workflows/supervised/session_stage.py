"""The stage of a supervised run that opens its folder and its session."""

from cookhouse.data import (
    MixedDataset,
    StreamedDataset,
)
from cookhouse.errors import InputError
from cookhouse.telemetry import events, keys
from cookhouse.training import (
    Cadence,
    ScheduledEvaluation,
)
from cookhouse.workflows.base.evaluation import HeldOutEvaluation, scheduled_evaluators
from cookhouse.workflows.base.run import open_run
from cookhouse.workflows.stages.stage import stage
from cookhouse.workflows.supervised.state import SupervisedState


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
    """What a service takes is known once the session is open, and may be less than the model could."""
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
