"""The supervised workflow: conversations in, an adapter out."""

import asyncio
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from cookhouse.catalog import context_tokens
from cookhouse.chat import Renderer
from cookhouse.data import (
    Conversation,
    Example,
    SupervisedDataset,
    build_renderer,
    parse_train_on_what,
    read_conversations,
    render_examples,
)
from cookhouse.errors import InputError
from cookhouse.evals import ExactMatchEvaluator, NLLEvaluator, preview_example
from cookhouse.tokenizers import get_tokenizer
from cookhouse.training import CrossEntropy, StepLog, SupervisedSource
from cookhouse.workflows.evaluation import HeldOutEvaluation
from cookhouse.workflows.stage import SlotStage, stage
from cookhouse.workflows.training_run import (
    TrainingPlan,
    TrainingState,
    cleanup,
    evaluate,
    open_run,
    save_final,
    save_state,
    set_steps,
)
from cookhouse.workflows.workflow import LoopStages, Workflow

_NUM_PREVIEWS = 2


@dataclass(frozen=True, kw_only=True)
class SupervisedPlan(TrainingPlan):
    """Everything a supervised run is told, all of it decided."""

    train_path: Path
    test_path: Path | None
    train_on_what: str
    max_length: int
    batch_size: int
    num_eval: int
    eval_max_tokens: int


@dataclass(kw_only=True)
class SupervisedState(TrainingState):
    """What the stages of a supervised run hand to one another."""

    plan: SupervisedPlan
    train: Sequence[Conversation] = field(init=False)
    test: Sequence[Conversation] = field(init=False)
    """Chosen for evaluation; empty: nothing is evaluated."""
    renderer: Renderer = field(init=False)
    dataset: SupervisedDataset = field(init=False)
    nll: NLLEvaluator | None = field(init=False)
    exact_match: ExactMatchEvaluator | None = field(init=False)


@stage(reads=("plan",), writes=("train", "test"))
async def load_dataset(state: SupervisedState) -> None:
    """Read the conversations to train on and, evenly spaced through its file, those to evaluate on."""
    plan = state.plan
    state.train = await asyncio.to_thread(read_conversations, plan.train_path)
    state.test = []
    if plan.test_path is not None and plan.num_eval > 0:
        held_out = await asyncio.to_thread(read_conversations, plan.test_path)
        count = min(plan.num_eval, len(held_out))
        state.test = [held_out[index * len(held_out) // count] for index in range(count)]


@stage(reads=("plan",), writes=("renderer",))
async def init_tokenizer(state: SupervisedState) -> None:
    """Load the tokenizer, and the renderer over it."""
    state.renderer = await asyncio.to_thread(_renderer, state.plan)


def _renderer(plan: SupervisedPlan) -> Renderer:
    return build_renderer(plan.model_name, plan.renderer_name, force=plan.force_renderer)


@stage(
    reads=("plan", "train", "test", "renderer"),
    writes=("dataset", "context_tokens", "notes", "nll", "exact_match", "total_steps", "cadence", "adam"),
)
async def build_supervised_dataset(state: SupervisedState) -> None:
    """Tokenize, and know from it how many steps there will be."""
    plan = state.plan
    state.context_tokens = await asyncio.to_thread(context_tokens, plan.model_name)
    examples = await _render(state, state.train)
    state.notes += _cut(state, examples, "examples")
    state.dataset = SupervisedDataset(examples, batch_size=plan.batch_size, seed=plan.seed)
    state.notes += state.dataset.notes
    state.nll = state.exact_match = None
    if state.test:
        held_out = await _render(state, state.test)
        state.notes += _cut(state, held_out, "held-out examples")
        state.nll = NLLEvaluator(held_out, get_tokenizer(plan.model_name))
        state.exact_match = ExactMatchEvaluator(
            state.test,
            state.renderer,
            max_tokens=plan.eval_max_tokens,
            context_tokens=state.context_tokens,
            group_by="skill",
        )
        state.notes += state.exact_match.notes
    set_steps(state, len(state.dataset))
    for pieces in preview(state):
        state.telemetry.event("data.preview", pieces=json.dumps(pieces))


def max_length(state: SupervisedState) -> int:
    """Tokens that an example may have: as many as the plan says, and the model takes."""
    return min(state.plan.max_length, state.context_tokens or state.plan.max_length)


def _cut(state: SupervisedState, examples: Sequence[Example], what: str) -> list[str]:
    num_cut = sum(example.num_cut_tokens > 0 for example in examples)
    if not num_cut:
        return []
    length = max_length(state)
    reason = "max_length" if length == state.plan.max_length else f"all that {state.plan.model_name} takes"
    return [f"{num_cut:,} of {len(examples):,} {what} lose their end: they are cut to {length:,} tokens ({reason})"]


def preview(state: SupervisedState) -> list[list[tuple[str, bool]]]:
    """The first examples as pieces of text, each with whether it is trained on."""
    tokenizer = get_tokenizer(state.plan.model_name)
    return [preview_example(example, tokenizer) for example in state.dataset.examples[:_NUM_PREVIEWS]]


async def _render(state: SupervisedState, conversations: Sequence[Conversation]) -> list[Example]:
    """Tokenize in a thread, which nobody can cancel: it sees for itself that the run has been stopped meanwhile."""
    is_over = threading.Event()

    def heed_the_end(num_done: int, num_all: int) -> None:
        if is_over.is_set():
            raise asyncio.CancelledError(f"tokenizing stopped after {num_done} of {num_all} conversations")

    train_on_what = parse_train_on_what(state.plan.train_on_what)
    render = partial(render_examples, max_length=max_length(state), progress=heed_the_end)
    try:
        return await asyncio.to_thread(render, conversations, state.renderer, train_on_what)
    finally:
        is_over.set()


@stage(
    reads=("plan", "choice", "notes", "nll", "exact_match", "total_steps"),
    writes=("folder", "checkpoints", "cursor", "session", "evaluation"),
    needs=("service",),
)
async def init_session(state: SupervisedState) -> None:
    """Open the run folder and then the session: fresh, from weights, or where a checkpoint of the folder left off."""
    await open_run(state)
    _refuse_longer(state)
    state.evaluation = _evaluation(state)


def _refuse_longer(state: SupervisedState) -> None:
    """What a service takes is known once the session is open, and may be less than the model could."""
    limit = state.session.context_tokens
    longest = state.dataset.statistics.longest_tokens
    if state.nll is not None and state.exact_match is not None:
        longest = max(longest, state.nll.longest_tokens, state.exact_match.longest_tokens)
    if limit is not None and longest > limit:
        raise InputError(
            f"{state.plan.model_name} takes {limit:,} tokens at this service, and the longest example, or held-out "
            f"prompt with its answer, has {longest:,}; set max_length={limit}, and eval_max_tokens or num_eval lower"
        )


def _evaluation(state: SupervisedState) -> HeldOutEvaluation | None:
    if state.nll is None or state.exact_match is None:
        return None
    return HeldOutEvaluation(
        nll=state.nll, exact_match=state.exact_match, telemetry=state.telemetry, keep=state.folder.write_answers
    )


def _source(state: SupervisedState) -> SupervisedSource:
    return SupervisedSource(state.dataset, total_steps=state.total_steps, cursor=state.cursor)


SUPERVISED = Workflow(
    name="supervised",
    state_class=SupervisedState,
    # What can be wrong with the caller's input is found before the folder is made and the session opened.
    setup=(load_dataset, init_tokenizer, build_supervised_dataset, init_session),
    loop=LoopStages(
        get_work=SlotStage(name="get_batch", make=_source, reads=("dataset", "total_steps", "cursor")),
        forward_backward=SlotStage(name="forward_backward", make=lambda _: CrossEntropy()),
        optim_step=SlotStage(name="optim_step", make=lambda state: state.adam, reads=("adam",)),
        log=SlotStage(
            name="log_step_metrics",
            make=lambda state: StepLog(state.telemetry, state.total_steps),
            reads=("telemetry", "total_steps"),
        ),
        checkpoint=SlotStage(
            name="checkpoint",
            make=lambda state: partial(save_state, state.plan),
            reads=("plan", "session", "checkpoints", "cadence"),
            is_optional=True,
        ),
        evaluate=SlotStage(
            name="evaluate", make=lambda state: state.evaluation, reads=("evaluation",), is_optional=True
        ),
    ),
    final=(save_final, evaluate),
    cleanup=cleanup,
)
