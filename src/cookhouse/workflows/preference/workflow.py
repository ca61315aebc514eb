"""The preference workflow: pairs of answers in, an adapter that prefers as they do out; and its summary."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from cookhouse.algorithms.base.counts import batch_metrics
from cookhouse.algorithms.base.evaluation import init_evaluators, keep_noted, scheduled_evaluators
from cookhouse.algorithms.base.facts import adapter_size, context_fact, model_fact
from cookhouse.algorithms.base.judge import check_preference_model
from cookhouse.algorithms.base.loop import BATCHED, batch_source, log_slot, objective_slot
from cookhouse.algorithms.base.reference_place import reference_in_words
from cookhouse.algorithms.base.rows import sources_of
from cookhouse.algorithms.base.run import open_run
from cookhouse.algorithms.base.second_model import open_sampler
from cookhouse.algorithms.base.tokenizer import init_tokenizer
from cookhouse.algorithms.base.workflow import training_workflow
from cookhouse.algorithms.pairs.assembler import PairAssembler, PairPayload
from cookhouse.algorithms.pairs.dataset import Pair
from cookhouse.algorithms.pairs.objective import pair_objective
from cookhouse.algorithms.pairs.reference import open_reference
from cookhouse.algorithms.stages.stage import SlotStage, stage
from cookhouse.algorithms.stages.workflow import Workflow
from cookhouse.envs import SecondModels, open_preference_model
from cookhouse.errors import InputError
from cookhouse.registry import Descent
from cookhouse.runs import Figure, RunResult
from cookhouse.settings import PreferenceSettings
from cookhouse.telemetry import events, keys, read_metrics
from cookhouse.training import (
    Assembled,
    BatchSource,
    Cadence,
    ScheduledEvaluation,
    service_errors,
)
from cookhouse.workflows.preference.data_stages import build_preference_dataset, load_dataset, preview
from cookhouse.workflows.preference.evaluation import AnswerJudge, PairEvaluation
from cookhouse.workflows.preference.state import PreferenceState
from cookhouse.workflows.preference.stream import StreamedPairBatch, StreamedPairs


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
        result=_result,
        facts=_facts,
        previews=preview,
        data_files=sources_of(config, "preferences"),
    )


_Row = Mapping[str, float]
_HELD_OUT = (
    (keys.TEST_PAIR_ACCURACY, "held-out pairs in the right order", True),
    (keys.TEST_PAIR_MARGIN, "held-out margin (chosen less rejected reward)", False),
    (keys.TEST_PAIR_LOSS, "held-out loss of a pair", False),
    (keys.TEST_ANSWERED_CHOSEN, "answers that are the chosen one", True),
    (keys.TEST_ANSWERED_REJECTED, "answers that are the rejected one", True),
    (keys.TEST_ANSWER_WIN_RATE, "of these two, answers that are the chosen one", True),
    (keys.TEST_WIN_RATE_CHOSEN, "answers' win rate against the chosen ones, as judged", True),
    (keys.TEST_WIN_RATE_INITIAL, "and against the answers before training", True),
)


def _figures(first: _Row, last: _Row, after: _Row) -> tuple[Figure, ...]:
    """Accuracy, margin and loss of held-out pairs, which of the two is answered, and the last training loss."""
    held_out = (
        Figure(name=name, label=label, before=first.get(name), after=after.get(name), is_share=is_share)
        for name, label, is_share in _HELD_OUT
    )
    trained = Figure(
        name=keys.PAIR_LOSS,
        label="training loss, first and last step",
        before=first.get(keys.PAIR_LOSS),
        after=last.get(keys.PAIR_LOSS),
    )
    return (*held_out, trained)


def _result(state: PreferenceState, seconds: float) -> RunResult[PreferenceState]:
    """The result, whose state has the last step's `dpo_metrics`, also where this launch took no step."""
    rows = read_metrics(state.folder.metrics)
    last: _Row = next((row for row in reversed(rows) if keys.PAIR_LOSS in row), {})
    state.dpo_metrics = {
        name.removeprefix("train/"): value for name, value in last.items() if name.startswith("train/")
    }
    return training_result(_figures, state, seconds)


def _facts(state: PreferenceState) -> dict[str, str]:
    """Facts of a dry run: pairs, tokens, the loss, the reference, steps, and the adapter."""
    config, pairs, counted = state.config, state.dataset.pairs, state.counts.statistics
    num_cut = sum(any(each.num_cut_tokens for each in pair.examples) for pair in pairs)
    num_pairs, about, held_out = counted.num_examples // 2, "", f"; {len(state.held_out):,} held out"
    if state.counts.num_sampled is not None:
        num_cut, about = num_cut * num_pairs // len(pairs), "about "
        held_out += f" (estimated from {state.counts.num_sampled:,} of {state.counts.num_rows:,} rows)"
    reference = reference_in_words(config, config.reference_model)
    return {
        "model": model_fact(config.model_name),
        "tokenizer": config.model_name,
        "renderer": config.renderer_name,
        "pairs": f"{about}{num_pairs:,} to train on, of which {num_cut:,} lose an end{held_out}",
        "tokens": f"{about}{counted.num_tokens:,}, prompts twice, of which {counted.num_trained_tokens:,} "
        f"({counted.trained_share:.1%}) are trained on",
        "context": context_fact(state.context_tokens),
        "longest answer": f"{max(pair.longest_tokens for pair in pairs):,} tokens with its prompt",
        "loss": f"{config.pair_loss}, β {config.dpo_beta:g}",
        "held-out answers": _comparison(state),
        "reference": reference if state.loss.needs_reference else f"none: {config.pair_loss} needs no reference",
        "steps": f"{state.total_steps:,} in all, {state.steps_per_epoch:,} per epoch",
        "adapter": adapter_size(config),
    }


def _comparison(state: PreferenceState) -> str:
    if state.answers is None:
        return "none"
    if state.config.preference_model is None:
        return "compared with the chosen and the rejected one letter by letter"
    return f"compared with the chosen ones, and those before training, by {state.config.preference_model}"
