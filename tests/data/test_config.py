"""From a file to batches: the embedded data, and conversations that people wrote."""

import copy
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from cookhouse.assets import resolve_model
from cookhouse.data import build_renderer, parse_train_on_what
from cookhouse.data.config import ConversationsConfig
from cookhouse.errors import BadRowsError, InputError, UnknownNameError
from cookhouse.models.catalog import renderer_names
from cookhouse.models.tokenizers import get_tokenizer


def config(**settings: Any) -> ConversationsConfig:
    return ConversationsConfig(**settings)


@pytest.fixture(scope="module")
def real_file(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Instructions of self-instruct and dialogs of Taskmaster-4, as a user would hand them in."""
    path = tmp_path_factory.mktemp("data") / "conversations.jsonl"
    with path.open("w", encoding="utf-8") as out:
        for line in (shared / "data/self_instruct/seed_tasks.jsonl").read_text().strip().split("\n"):
            task = json.loads(line)
            for instance in task["instances"]:
                row = {"instruction": task["instruction"], **instance}
                out.write(json.dumps(row, ensure_ascii=False) + "\n")
        for line in (shared / "data/taskmaster4/dialogs_600.jsonl").read_text().strip().split("\n"):
            dialog = json.loads(line)
            messages = [{"role": turn["speaker"], "content": turn["text"]} for turn in dialog["utterances"]]
            out.write(json.dumps({"messages": messages, "vertical": dialog["vertical"]}) + "\n")
    return path


def has_line_breaks(row: dict[str, Any]) -> bool:
    answers = [message["content"] for message in row.get("messages", ()) if message["role"] == "assistant"]
    return any("\n" in answer for answer in [*answers, row.get("output", "")])


@pytest.mark.parametrize("renderer", renderer_names("cookhouse/tiny"))
def test_real_conversations_become_batches_with_every_renderer(real_file: Path, tmp_path: Path, renderer: str) -> None:
    if renderer == "human_ai":  # refuses what it cannot sample: answers of several lines
        kept = tmp_path / "lines.jsonl"
        lines = real_file.read_text().strip().split("\n")
        kept.write_text("\n".join(line for line in lines if not has_line_breaks(json.loads(line))))
        real_file = kept
    seen: list[tuple[int, int]] = []
    dataset = config(dataset_path=str(real_file), renderer_name=renderer, batch_size=64).build(
        lambda done, total: seen.append((done, total))
    )
    num_rows = len(real_file.read_text(encoding="utf-8").strip().split("\n"))
    statistics = dataset.statistics
    assert num_rows > 500
    assert statistics.num_examples >= num_rows
    assert 0.1 < statistics.trained_share < 0.9
    assert seen[-1] == (num_rows, num_rows)
    assert len(seen) <= 120
    dataset.set_epoch(0)
    for index in range(len(dataset)):
        for datum in dataset.get_batch(index):
            weights = datum.loss_fn_inputs["weights"].to_numpy()
            assert datum.model_input.length == weights.size
            assert weights.sum() > 0


def test_cutting_is_counted_and_rows_left_without_target_are_named(
    real_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cut = config(dataset_path=str(real_file), batch_size=16, max_length=40)
    with caplog.at_level(logging.WARNING):
        dataset = cut.build()
    statistics = dataset.statistics
    assert statistics.num_truncated > statistics.num_untrained > 0
    assert statistics.longest_tokens == 40
    assert caplog.messages[-len(dataset.notes) :] == dataset.notes
    assert "end with a message of the user, which is not trained on" in caplog.messages[0]
    assert f"the first is {real_file}:" in dataset.notes[0]


def test_the_bundled_conversations_are_the_default() -> None:
    dataset = config(n_train_samples=64).build()
    assert (dataset.statistics.num_examples, len(dataset)) == (64, 2)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"train_on_what": "all_assistant_mesages"}, "unknown train_on_what.*did you mean all_assistant_messages"),
        ({"renderer_name": "qwen3_instrukt"}, "unknown renderer.*did you mean qwen3_instruct"),
        ({"model_name": "Qwen/Qwen3-8B", "renderer_name": "role_colon"}, "does not fit"),
        ({"model_name": "someone/model"}, "HF_HUB_OFFLINE is set"),
        ({"max_length": 1}, "max_length is 1"),
        ({"n_train_samples": 0}, "n_train_samples is 0"),
        ({"train_on_what": "customized"}, r"train\.jsonl:1-\d+: message 1 lacks trainable"),
        ({"dataset_path": "no-such.jsonl"}, r"no-such\.jsonl does not exist"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        config(**settings).build()


def test_a_row_that_the_renderer_refuses_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"input": "q", "output": "a"}\n{"input": "q", "output": "<think>x</think>a"}\n')
    with pytest.raises(InputError, match=r"rows\.jsonl:2: this renderer trains no thinking"):
        config(dataset_path=str(path), batch_size=1).build()


def test_rows_that_the_renderer_refuses_are_named_together(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"input": "q", "output": "<think>x</think>a"}\n' * 22)
    with pytest.raises(BadRowsError) as caught:
        config(dataset_path=str(path), batch_size=1).build()
    assert (len(caught.value.reasons), caught.value.num_bad) == (20, 22)
    assert caught.value.reasons[19].startswith(f"{path}:20: this renderer trains no thinking")


def test_a_renderer_that_does_not_fit_can_be_forced(shared: Path) -> None:
    model = str(shared / "tokenizers/llama3")
    with pytest.raises(InputError, match=r"holds no config\.json"):
        build_renderer(model, "role_colon")
    assert build_renderer(model, "role_colon", force=True).begin() == [128000]


def test_modes_have_their_names() -> None:
    assert parse_train_on_what("all_tokens") == "all_tokens"
    with pytest.raises(UnknownNameError, match="unknown train_on_what 'everything'"):
        parse_train_on_what("everything")


def test_tokens_that_the_model_has_no_embeddings_for_are_refused(tmp_path: Path) -> None:
    """Would catch a dry run that promises a run which the service refuses."""
    template = "{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    folder = tmp_path / "grown"
    tokenizer = copy.deepcopy(get_tokenizer("cookhouse/tiny"))
    num_embeddings = len(tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|turn|>"]})
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    for vocab_size in (num_embeddings, num_embeddings + 1):
        sizes = {"hidden_size": 64, "vocab_size": vocab_size, "num_hidden_layers": 1, "num_attention_heads": 1}
        (folder / "config.json").write_text(json.dumps({"model_type": "mistral", "intermediate_size": 8, **sizes}))
        if vocab_size > num_embeddings:
            assert build_renderer(str(folder), "template").encoder.has("<|turn|>")
            continue
        with pytest.raises(InputError, match=rf"token {num_embeddings} \('<\|turn\|>'\) .*resize_token"):
            build_renderer(str(folder), "template").build_generation_prompt([{"role": "user", "content": "a"}])


def test_a_renderer_knows_how_many_embeddings_its_model_has() -> None:
    config = json.loads((Path(resolve_model("cookhouse/tiny")) / "config.json").read_text())
    assert build_renderer("cookhouse/tiny").encoder.num_embeddings == config["vocab_size"]
