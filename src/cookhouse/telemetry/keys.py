"""The metrics that cookhouse writes, declared: names, with unit and reduction next to each, and what `Metric` holds."""

from typing import Final

from cookhouse.telemetry.metric import Metric

BUILT_IN: Final[dict[str, Metric]] = {}
"""What is declared here, by name."""
COUNTS: Final = frozenset(
    {
        "cut_to_nothing",
        "dropped",
        "failures",
        "groups_failed",
        "not_compared",
        "num_skipped_rows",
        "retried",
        "tool_errors",
    }
)
"""Parts of names of counts of what went wrong. Fewer are no better where less was tried: no run is the best by them."""


def _declared(metric: Metric) -> str:
    BUILT_IN[metric.name] = metric
    return metric.name


TRAIN_LOSS: Final = _declared(
    Metric("train/loss", direction="less", label="training loss", chart=10, headline=80, line="loss {:.4f}")
)
"""Mean negative log-likelihood in nats: −Σ logprob·weight / Σ weight over the step's tokens."""
TRAIN_TOKENS: Final = "train/num_tokens"
"""Input tokens of the step."""
TRAIN_TRAINED_TOKENS: Final = "train/num_trained_tokens"
"""Tokens of the step with a weight other than 0."""
POLICY_LOSS: Final = _declared(Metric("optim/loss", direction="less", label="policy loss", headline=100))
"""Of a policy loss: its sum over all tokens of the step, as the service reports it."""
POLICY_LOSS_MEAN: Final = _declared(Metric("optim/policy_loss", direction="less"))
"""The same as a mean over the step's trained tokens and epochs, each with the weight that `reduction` gives it."""
PAIR_LOSS: Final = _declared(
    Metric("train/dpo_loss", direction="less", label="training loss", chart=40, headline=90, line="loss {:.4f}")
)
"""Mean loss of a step's pairs of answers, whichever loss over pairs that is."""
PAIR_ACCURACY: Final = _declared(
    Metric(
        "train/accuracy",
        direction="more",
        is_share=True,
        label="accuracy in training",
        headline=70,
        line="accuracy {:.0%}",
    )
)
"""Share of pairs whose chosen answer has the higher reward, in [0, 1]; a tie is half."""
PAIR_MARGIN: Final = _declared(Metric("train/margin", direction="more", chart=90, line="margin {:+.3f}"))
"""Mean of the chosen less the rejected answer's reward."""
TEACHER_KL: Final = _declared(Metric("teacher_kl", direction="less", chart=100))
"""Reverse divergence of the student from its teacher: the mean over sampled tokens of logprob under the student less
that under the teacher, in nats. Behind a slash, of one data set."""
TEACHER_KL_AT: Final = "teacher_kl_at/"
"""The same at positions of an answer, counted from 0."""
TRAIN_REWARD: Final = _declared(
    Metric(
        "env/all/reward/total",
        direction="more",
        label="reward in training",
        chart=110,
        headline=60,
        line="reward {:.3f}",
    )
)
"""Mean total reward per trajectory of the step."""
TRAIN_REWARD_STD: Final = "env/all/reward/total_std"
"""Standard deviation of these rewards, divided by their number."""
TRAIN_EPISODES: Final = "env/all/total_episodes"
"""Attempts that these are over."""
TRAIN_GROUPS: Final = "env/all/total_groups"
"""Groups that these are over."""
GROUPS_MIXED: Final = "env/all/by_group/frac_mixed"
"""Share of the step's groups whose rewards differ, in [0, 1]."""
GROUPS_ALL_GOOD: Final = "env/all/by_group/frac_all_good"
"""Share of the groups whose rewards are all equal, and 0.5 or more."""
TRAIN_TRUNCATED: Final = "env/all/frac_truncated"
"""Share of the attempts that a limit of tokens ended, in [0, 1]."""
TOOL_CALLS: Final = "env/all/tool_calls"
"""Calls of tools per turn."""
TOOL_ERRORS: Final = "env/all/tool_errors"
"""Those of them that were answered with an error."""
TEST_REWARD: Final = _declared(
    Metric(
        "test/env/all/reward/total",
        direction="more",
        label="held-out reward",
        chart=120,
        headline=20,
        line="mean reward {:.3f}",
    )
)
"""As `env/all/reward/total`, over the held-out problems."""
TEST_REWARD_STDERR: Final = "test/env/all/reward/total_stderr"
"""Standard error of that mean, of independent problems."""
TEST_EPISODES: Final = _declared(Metric("test/env/all/total_episodes", line="{:,.0f} held-out attempts"))
"""Attempts that `test/env/all/reward/total` is over."""
TEST_CORRECT: Final = "test/env/all/correct"
"""Mean of what an environment calls correct, over the held-out problems."""
TEST_NLL: Final = _declared(
    Metric("test/nll", direction="less", label="held-out loss", chart=20, headline=50, line="held-out loss {:.4f}")
)
"""As `train/loss`, over the held-out examples."""
TEST_EXACT_MATCH: Final = _declared(
    Metric(
        "test/exact_match",
        direction="more",
        is_share=True,
        label="exact match",
        chart=30,
        headline=10,
        line="exact match {:.1%}",
    )
)
"""Share of held-out conversations answered exactly, in [0, 1]."""
TEST_COUNT: Final = "test/exact_match_n"
"""Held-out conversations that `test/exact_match` is over."""
TEST_TRUNCATED: Final = _declared(
    Metric(
        "test/truncated",
        direction="less",
        is_share=True,
        label="answers truncated",
        line="{:.0%} of answers truncated at eval_max_tokens",
    )
)
"""Share of these answers that `eval_max_tokens` ended, in [0, 1]: they count as wrong, and might have been right."""
TEST_ACCURACY: Final = "test/accuracy"
"""Of labels: share of held-out conversations answered with the right class. `test/accuracy_n` is how many there are."""
TEST_PRECISION: Final = "test/precision"
"""Over the classes, averaged as `test/averaging` names."""
TEST_RECALL: Final = "test/recall"
TEST_F1: Final = "test/f1"
TEST_PAIR_LOSS: Final = "test/dpo_loss"
TEST_PAIR_ACCURACY: Final = _declared(
    Metric("test/accuracy", direction="more", is_share=True, chart=50, headline=40, line="accuracy {:.1%}")
)
TEST_PAIR_MARGIN: Final = _declared(Metric("test/margin", direction="more", chart=130, line="margin {:+.3f}"))
"""As those of `train/`, over the held-out pairs."""
TEST_PAIRS: Final = "test/accuracy_n"
"""Held-out pairs that these are over."""
TEST_ANSWERED_CHOSEN: Final = _declared(
    Metric("test/answered_chosen", direction="more", is_share=True, chart=80, line="{:.1%} answered as chosen")
)
"""Share of held-out prompts that are answered exactly with the chosen answer, in [0, 1]."""
TEST_ANSWERED_REJECTED: Final = "test/answered_rejected"
TEST_ANSWER_WIN_RATE: Final = _declared(Metric("test/answer_win_rate", direction="more", is_share=True, chart=140))
"""Of answers to held-out prompts that are exactly one of the two, the share that is the chosen one; `_n` is how many
these are, `_low` and `_high` are Wilson's interval."""
TEST_WIN_RATE_CHOSEN: Final = _declared(
    Metric(
        "test/win_rate_chosen", direction="more", is_share=True, chart=60, line="{:.1%} win against the chosen answers"
    )
)
"""Share of answers to held-out prompts that win against the chosen ones by the preference model, a draw being half a
win; `_low` and `_high` are Wilson's interval, `_n` is of how many."""
TEST_WIN_RATE_INITIAL: Final = _declared(Metric("test/win_rate_initial", direction="more", is_share=True, chart=70))
"""The same, against the answers of the weights that the run began with."""
TEST_WIN_SHARE: Final = "test/env/all/win_share"
"""Of held-out answers: (1 + score) / 2 by the preference model against the answers of the data, in [0, 1]."""
TEST_RULE: Final = "test/env/all/rule"
"""Mean grade of the same answers by a rule that is not trained on, in [0, 1]."""
TEST_AGREEMENT: Final = "test/env/all/agreement"
"""Share of the same answers that both find better than not, or neither."""
ENTROPY: Final = _declared(Metric("optim/entropy", chart=160))
"""Mean negative logprob of the sampled tokens when they were sampled, in nats."""
REPLACED_SHARE: Final = _declared(Metric("rollouts/frac_replaced", is_share=True))
"""Groups that had one reward for all and that others replaced, over all groups sampled for the step, in [0, 1]."""
OVERLONG_PENALTY: Final = _declared(Metric("rollouts/overlong_penalty", direction="less"))
"""Mean of what is taken from the reward of an answer for its length, over all answers of the step, in [0, 1]."""
CLIP_SHARE: Final = "optim/clip_frac"
"""Share of sampled tokens whose ratio is outside of the loss's bounds, in [0, 1]; of losses that have some."""
SAMPLER_KL: Final = _declared(Metric("optim/kl_sample_train_v1", chart=150))
"""Mean log-ratio of the weights that sampled and those that train, over the sampled tokens, in nats; where a batch is
trained on several times, of the first."""
EPOCHS_KL: Final = "optim/kl_ppo_epochs_v1"
"""Mean log-ratio of the weights that the first of `ppo_epochs` met and those that the last met, over the sampled
tokens, in nats: how far the step itself has moved them by then."""
LAG_MEAN: Final = "rollouts/lag_mean"
"""Mean number of steps between the weights that sampled a group and those that train on it."""
REFERENCE_KL: Final = "optim/kl_reference"
"""Mean log-ratio of sampler and reference over the sampled tokens, in nats."""
DATA_EXAMPLES: Final = "data/num_examples"
"""Of streamed data: examples that the rows of a step made, those without a trained token among them."""
DATA_TOKENS: Final = "data/num_tokens"
"""Tokens of those examples, after cutting."""
DATA_TRAINED_TOKENS: Final = "data/num_trained_tokens"
DATA_TRUNCATED: Final = "data/num_truncated"
"""Examples that lost their end."""
DATA_UNTRAINED: Final = "data/num_untrained"
"""Examples without a trained token, which are left out."""
DATA_SKIPPED: Final = "data/num_skipped_rows"
"""Rows that could not be used, with `on_bad_row=skip`."""
LEARNING_RATE: Final = _declared(Metric("optim/lr", chart=180))
"""Of the step. The service's own optimizer metrics stand next to it."""
GRAD_NORM: Final = _declared(Metric("optim/grad_norm", chart=170))
"""Of the service, taken before clipping."""
PROGRESS_EPOCH: Final = "progress/epoch"
PROGRESS_BATCH: Final = "progress/batch"
"""Batch within the epoch, from 0."""
PROGRESS_DONE: Final = "progress/done_frac"
"""Steps finished over all steps, in [0, 1]."""
STEP_SECONDS: Final = "time/step_seconds"
"""Wall-clock time from the last answer to the step before it (for the first: from its submission) to its own last
answer, without the time in which nothing but an evaluation kept it from being submitted."""
ROLLOUT_WAIT_SECONDS: Final = "time/rollout_wait_seconds"
"""Wall-clock time of a step in which training waited for its rollouts, new weights for them included."""
TOKENS_PER_SECOND: Final = "time/tokens_per_second"
"""Input tokens of the step over `time/step_seconds`."""

for _metric in (
    # What services, losses and evaluators of any name call so.
    *(Metric(name, direction="less") for name in ("loss", "dpo_loss", "nll", "bits_per_byte", "forward_kl")),
    *(Metric(name, direction="more") for name in ("reward", "margin", "precision", "recall", "f1")),
    Metric("accuracy", direction="more", is_share=True),
    Metric("exact_match", direction="more", is_share=True, label="exact match"),
    # Benchmarks, and the grades of their answers.
    Metric("test/correct", direction="more", is_share=True, headline=30),
    *(Metric(name, direction="more", is_share=True) for name in ("correct", "correct_norm", "correct_loose")),
    *(Metric(name, direction="more", is_share=True) for name in ("pass@K", "format")),
    *(Metric(name, direction="more", is_share=True) for name in ("instructions_strict", "instructions_loose")),
    *(Metric(name, direction="less", is_share=True) for name in ("malformed", "failed")),
    # Environments.
    *(Metric(name, direction="less") for name in ("tool_errors", "invalid_move")),
    *(Metric(name, direction="more") for name in ("allowed", "rule", "agreement", "win_share", "win_minus_loss")),
    *(Metric(name, direction="more") for name in ("win_share_chosen", "win_share_rejected", "win_share_initial")),
    # Answers that are compared with others.
    *(Metric(name, direction="more", is_share=True) for name in ("answered_chosen", "answer_win_rate")),
    *(Metric(name, direction="more", is_share=True) for name in ("win_rate_chosen", "win_rate_initial")),
    Metric("answered_rejected", direction="less", is_share=True),
    *(Metric(name, direction="less") for name in ("order_disagreement", "not_compared")),
    # Attempts and groups of them, and a teacher's samples.
    *(Metric(name, direction="less") for name in ("failures", "retried", "dropped", "groups_failed", "frac_all_bad")),
    Metric("frac_truncated", direction="less", is_share=True),
    Metric("frac_all_good", direction="more"),
    *(Metric(name, direction="less") for name in ("teacher_kl_at", "cut_to_nothing", "num_skipped_rows")),
):
    _declared(_metric)
