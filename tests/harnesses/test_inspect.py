"""Weights as a model of Inspect AI."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tinker

from cookhouse.chat import Renderer, get_renderer
from cookhouse.errors import InputError
from cookhouse.evals import SamplingAnswerer
from cookhouse.models.tokenizers import get_tokenizer

pytest.importorskip("inspect_ai", reason="needs Inspect AI: make test-harness")
from inspect_ai.model import ChatMessageAssistant, ChatMessageTool, ChatMessageUser, GenerateConfig
from inspect_ai.tool import ToolCall, ToolInfo, ToolParams
from tests.harnesses.tools_task import sums

from cookhouse.evals.inspect.evaluator import inspect_evaluator
from cookhouse.evals.inspect.model import SampledModel
from cookhouse.evals.inspect.tasks import InspectOptions, find_tasks, run_task

# The warnings are of Inspect AI's own code.
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("_no_collection"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
_TASK = Path(__file__).with_name("tools_task.py")
_ADD = ToolInfo(name="add", description="Add.", parameters=ToolParams())


@dataclass
class _Client:
    """Says what it is told to, and remembers what it was asked."""

    renderer: Renderer
    text: str
    asked: list[tuple[tinker.ModelInput, int, tinker.SamplingParams, dict[str, Any]]] = field(default_factory=list)

    async def sample(
        self, prompt: tinker.ModelInput, num_samples: int, sampling_params: tinker.SamplingParams, **others: Any
    ) -> Any:
        self.asked.append((prompt, num_samples, sampling_params, others))
        tokens = self.renderer.encoder.encode_with_specials(self.text)
        sequence = tinker.SampledSequence(
            stop_reason="stop",
            sequence_id="s",
            _tokens_list=tokens,
            _logprobs_list=[-0.5] * len(tokens),
            _topk_logprobs_list=[[(token, -0.5), (1, -2.0)] for token in tokens],
        )
        return tinker.SampleResponse(sequences=[sequence] * num_samples)

    async def compute_logprobs(self, prompt: tinker.ModelInput) -> list[float | None]:
        raise AssertionError(f"a task scores no prompt, such as this of {prompt.length} tokens")


@pytest.fixture
def renderer(shared: Path) -> Renderer:
    folder = next(folder for folder in sorted((shared / "tokenizers").iterdir()) if "qwen3" in folder.name.lower())
    return get_renderer("qwen3_instruct", get_tokenizer(str(folder)))


async def test_tools_and_calls_pass_through(renderer: Renderer) -> None:
    """Catches a tool that the model never hears of, a call that Inspect never sees, and one that cannot be read."""
    good_call = '<tool_call>\n{"name": "add", "arguments": {"x": 2}}\n</tool_call>'
    text = f'{good_call}\n<tool_call>\n{{"name"\n</tool_call><|im_end|>'
    output, client = await _ask(renderer, text, [ChatMessageUser(content="2 + 3?")], tools=[_ADD])
    prompt = renderer.encoder.decode(client.asked[0][0].to_ints())
    assert '"name": "add"' in prompt
    good, bad = output.choices[0].message.tool_calls
    assert (good.function, good.arguments, good.parse_error) == ("add", {"x": 2}, None)
    assert bad.parse_error
    assert output.stop_reason == "tool_calls"


async def test_a_conversation_with_results_is_rendered_as_ours(renderer: Renderer) -> None:
    """Catches history that is lost or put into another form than the weights were trained on."""
    call = ToolCall(id="c1", function="add", arguments={"x": 2})
    history = [
        ChatMessageUser(content="2 + 3?"),
        ChatMessageAssistant(content="", tool_calls=[call]),
        ChatMessageTool(content="5", tool_call_id="c1", function="add"),
    ]
    _, client = await _ask(renderer, "5<|im_end|>", history)
    ours = renderer.build_generation_prompt(
        [
            {"role": "user", "content": "2 + 3?"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"type": "function", "id": "c1", "function": {"name": "add", "arguments": {"x": 2}}}],
            },
            {"role": "tool", "content": "5", "tool_call_id": "c1", "name": "add"},
        ]
    )
    assert client.asked[0][0].to_ints() == ours.to_ints()


async def test_settings_pass_through(renderer: Renderer) -> None:
    """Catches a seed, a limit, a stop sequence, a number of choices or logprobs that are dropped on the way."""
    config = GenerateConfig(
        seed=7, temperature=0.3, top_p=0.9, top_k=5, max_tokens=9, stop_seqs=["END"], num_choices=2, top_logprobs=2
    )
    output, client = await _ask(renderer, "one END two<|im_end|>", [ChatMessageUser(content="Hi")], config=config)
    _, num_samples, params, others = client.asked[0]
    assert (num_samples, params.seed, params.temperature, params.top_p, params.top_k) == (2, 7, 0.3, 0.9, 5)
    assert (params.max_tokens, list(params.stop or ())) == (9, ["<|im_end|>", "END"])
    assert others == {"topk_sample_logprobs": 2}
    assert [choice.message.text for choice in output.choices] == ["one ", "one "]
    first = output.choices[0].logprobs.content[0]
    assert (first.token, first.logprob, len(first.top_logprobs)) == ("one", -0.5, 2)
    assert output.usage.input_tokens == client.asked[0][0].length


@pytest.mark.parametrize(
    ("config", "choice", "said"),
    [
        (GenerateConfig(frequency_penalty=1.0), "auto", "takes no frequency_penalty"),
        (GenerateConfig(), "any", "tool_choice 'any'"),
    ],
)
async def test_what_cannot_be_kept_to_is_refused(
    renderer: Renderer, config: GenerateConfig, choice: Any, said: str
) -> None:
    """Catches a setting that is silently ignored, so that a figure is of something else."""
    with pytest.raises(InputError, match=said):
        await _ask(renderer, "x", [ChatMessageUser(content="Hi")], config=config, choice=choice)


async def test_a_task_evaluates_a_run(renderer: Renderer, tmp_path: Path) -> None:
    """Catches figures that do not arrive, are of another model than the run's, or depend on more than its seed."""
    client = _Client(renderer, "It is 5.<|im_end|>")
    settings: Any = SimpleNamespace(log_path=str(tmp_path), model_name="Qwen/Qwen3-0.6B", seed=4)
    evaluator: Any = inspect_evaluator(sums)(settings, renderer)
    figures = await evaluator(client)
    assert figures["inspect/sums/includes/accuracy"] == 0.5
    assert {params.seed for _, _, params, _ in client.asked} == {4}
    assert list((tmp_path / "inspect").iterdir())


@pytest.mark.parametrize(
    ("asking", "temperature", "max_tokens", "seeds"),
    [
        (InspectOptions(seed=3), 0.0, 2048, {3}),
        (InspectOptions(seed=3, temperature=0.7, max_tokens=9), 0.7, 9, {3}),
        (InspectOptions(seed=3, epochs=2), 1.0, 2048, {3, 4}),
    ],
    ids=["left open", "given", "epochs"],
)
async def test_settings_of_an_evaluation_reach_the_sampler(
    renderer: Renderer, tmp_path: Path, asking: InspectOptions, temperature: float, max_tokens: int, seeds: set[int]
) -> None:
    """Catches a setting that is lost in Inspect AI, and epochs that all get one answer."""
    client = _Client(renderer, "It is 5.<|im_end|>")
    [task] = await find_tasks([f"{_TASK}@sums"], None, asking.epochs)
    result = await run_task(task, SampledModel("m", SamplingAnswerer(client, renderer)), asking, tmp_path)
    assert result is not None
    assert result.figures["includes/accuracy"].mean == 0.5
    asked = [params for _, _, params, _ in client.asked]
    assert {params.seed for params in asked} == seeds
    assert {(params.temperature, params.max_tokens) for params in asked} == {(temperature, max_tokens)}
    num_asked = len(asked)
    await run_task(task, SampledModel("m", SamplingAnswerer(client, renderer)), asking, tmp_path)
    assert len(asked) == num_asked, "it was finished"
    others = replace(asking, seed=5)
    await run_task(task, SampledModel("m", SamplingAnswerer(client, renderer)), others, tmp_path)
    assert len(client.asked) == 2 * num_asked, "other settings are another evaluation"


async def test_tools_are_text_where_a_format_has_no_form_for_them(caplog: pytest.LogCaptureFixture) -> None:
    """Catches a model that is never told of its tools, and one that is refused for its format."""
    renderer = get_renderer("role_colon", get_tokenizer("cookhouse/tiny"))
    text = ' <tool_call>{"name": "add", "arguments": {"x": 2}}</tool_call>\n\nUser:'
    output, client = await _ask(renderer, text, [ChatMessageUser(content="2 + 3?")], tools=[_ADD])
    assert '"name": "add"' in renderer.encoder.decode(client.asked[0][0].to_ints())
    [call] = output.choices[0].message.tool_calls
    assert (call.function, call.arguments, call.parse_error) == ("add", {"x": 2}, None)
    assert "no form for tools; they are written as text" in caplog.text


@pytest.mark.slow
def test_a_task_runs_by_the_command(tmp_path: Path) -> None:
    """Catches a provider that is not found, an engine that stays, and answers that are others for the same seed."""
    first, second = (_run_inspect(tmp_path / name, "sums", "cookhouse/tiny") for name in ("a", "b"))
    assert first["status"] == "success"
    said = [[_text(sample) for sample in log["samples"]] for log in (first, second)]
    assert said[0] == said[1]


@pytest.mark.slow
@pytest.mark.real
def test_a_pretrained_model_calls_tools_by_the_command(tmp_path: Path, smollm2: Path) -> None:
    """Catches tools that do not reach a model whose chat template has none, calls that are not read, and results that
    do not go back. The model imitates the worked examples of the task.
    """
    log = _run_inspect(tmp_path, "shown_sums", str(smollm2), "--temperature", "0", "--max-tokens", "64")
    assert log["status"] == "success"
    assert log["results"]["scores"][0]["metrics"]["accuracy"]["value"] == 1.0
    for sample in log["samples"]:
        *_, question, call, result, answer = sample["messages"]
        assert question["role"] == "user"
        assert call["tool_calls"][0]["function"] == "add"
        assert (result["role"], result["content"]) == ("tool", sample["target"])
        assert sample["target"] in answer["content"]


async def _ask(
    renderer: Renderer,
    text: str,
    messages: list[Any],
    tools: list[ToolInfo] | None = None,
    config: GenerateConfig | None = None,
    choice: Any = "auto",
) -> tuple[Any, _Client]:
    client = _Client(renderer, text)
    model = SampledModel("m", SamplingAnswerer(client, renderer))
    answered: Any = await model.generate(messages, tools or [], choice, config or GenerateConfig())
    output, _ = answered
    return output, client


def _run_inspect(folder: Path, task: str, weights: str, *others: str) -> dict[str, Any]:
    """The log of a task, run by Inspect's own command with a fixed seed, in single precision."""
    command = [sys.executable, "-m", "inspect_ai", "eval", f"{_TASK.name}@{task}", "--model", f"cookhouse/{weights}"]
    options = [
        "--seed",
        "3",
        "--max-tokens",
        "24",
        "--log-dir",
        str(folder),
        "--log-format",
        "json",
        "--display",
        "none",
    ]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TINKER_")}
    environ["COOKHOUSE_PRECISION"] = "float32"
    ended = subprocess.run(
        [*command, *options, *others],
        cwd=_TASK.parent,
        capture_output=True,
        text=True,
        env=environ,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    [file] = folder.glob("*.json")
    log: dict[str, Any] = json.loads(file.read_text())
    return log


def _text(sample: dict[str, Any]) -> str:
    return str(sample["output"]["choices"][0]["message"]["content"])
