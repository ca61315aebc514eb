"""Settings of evaluations that stand alone."""

import chz

from cookhouse.settings.checks import at_least
from cookhouse.settings.defaults import Default, computed
from cookhouse.settings.facts import Alias, NamesWeights, facts
from cookhouse.settings.judge import judge_setting
from cookhouse.settings.training import BenchmarkDataSettings, RunSettings


@chz.chz
class EvalSettings(RunSettings, BenchmarkDataSettings):
    """Settings of an evaluation: weights, benchmarks, and the way they are asked."""

    help_title = "Evaluation"

    weights: str | None = chz.field(
        default=None,
        doc="Weights to evaluate; default: the base model. A tinker:// path, a run, a registered model such "
        "as sums@1, or a PEFT folder.",
        metadata=facts(
            weights=NamesWeights(port="completer", address="openai_base_url"),
            aliases=(Alias(name="model_path", doc="tinker-cookbook, of evaluations"),),
        ),
    )
    compare_with: str = chz.field(
        default="",
        doc="Further weights, evaluated as the first and compared with them, separated by commas; or, where names hold "
        "commas, a JSON list.",
        metadata=facts(is_list=True),
    )
    openai_base_url: str | None = chz.field(
        default=None,
        doc="Ask the OpenAI-compatible service at this address, such as http://127.0.0.1:8000/v1, for the model that "
        "weights names; the key is OPENAI_API_KEY.",
    )
    benchmark: str = computed(
        Default(lambda config: "" if config.inspect else "arithmetic", "arithmetic, unless inspect names tasks"),
        str,
        "Benchmarks to run, separated by commas. By name, module:NAME, file.py:NAME or a file such as mine.jsonl.",
        metadata=facts(is_list=True),
    )
    judge: str | None = judge_setting("openai_base_url")
    inspect: str = chz.field(
        default="",
        doc="Tasks of Inspect AI, by file.py, file.py@task or package/task as inspect eval names them, separated by "
        "commas.",
        metadata=facts(is_list=True, aliases=(Alias(name="tasks", doc="tinker-cookbook, of evaluations"),)),
    )
    limit: int | None = chz.field(
        default=None,
        doc="Items of each benchmark and task; default: all. Evenly spaced through all of them.",
        validator=at_least(1),
    )
    num_samples: int = chz.field(
        default=1,
        doc="Answers to each item; of several, pass@k is told. Of tasks: epochs, where they are several.",
        validator=at_least(1),
    )
    max_tokens: int | None = chz.field(
        default=None, doc="Tokens per answer, at most; default: as the benchmark says.", validator=at_least(1)
    )
    temperature: float = computed(
        Default(lambda config: 0.0 if config.num_samples == 1 else 1.0, "0 (greedy) for one sample, else 1"),
        float,
        "Sampling temperature.",
        at_least(0),
    )
    system_prompt: str | None = chz.field(default=None, doc="First message of every conversation.")
    max_concurrent_requests: int = chz.field(
        default=64,
        doc="Items that are answered or graded at a time.",
        validator=at_least(1),
        metadata=facts(free_on_resume=True),
    )
