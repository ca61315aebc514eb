"""Models that see: images between texts, token by token where there are none."""

import importlib.util
import io
from pathlib import Path
from typing import Any

import pytest
from tests.chat.families.agreement import Comparer, Family
from tests.chat.families.conversations import make_conversations
from tests.chat.families.families import NO_THINKING
from tinker import EncodedTextChunk
from tinker.types import ImageChunk

from cookhouse.chat import Message, TrainOnWhat, get_renderer
from cookhouse.errors import InputError
from cookhouse.models.tokenizers import get_tokenizer

PIL = pytest.importorskip("PIL.Image", reason="needs the extra 'vision'")
NAMES = ("qwen3_vl_instruct", "qwen3_vl", "qwen3_5", "qwen3_5_disable_thinking", "qwen3_5_preserve_thinking")


def picture(width: int, height: int) -> bytes:
    file = io.BytesIO()
    PIL.new("RGB", (width, height)).save(file, "PNG")
    return file.getvalue()


def image(width: int, height: int) -> Any:
    return {"type": "image", "image": picture(width, height)}


def text(text: str) -> Any:
    return {"type": "text", "text": text}


SEEN: list[Message] = [
    {"role": "user", "content": [text(" Left: "), image(320, 256), text(" right: "), image(640, 480)]},
    {"role": "assistant", "content": "One is larger."},
    {"role": "user", "content": [image(64, 64), text("And this? ")]},
    {"role": "assistant", "content": "Small."},
]
NUM_TOKENS = [80, 300, 64]


@pytest.fixture(params=NAMES)
def renderer(request: pytest.FixtureRequest, shared: Path) -> Any:
    folder = "qwen3_5" if request.param.startswith("qwen3_5") else "qwen3"
    return get_renderer(request.param, get_tokenizer(str(shared / "tokenizers" / folder)))


@pytest.fixture
def vl_template() -> Path:
    """Qwen3-VL's own, as the package trl has it (chat_templates/qwen3_vl.jinja, Apache-2.0)."""
    found = importlib.util.find_spec("trl")
    if found is None or found.origin is None:
        pytest.skip("needs the chat template of Qwen3-VL: pip install --no-deps trl")
    return Path(found.origin).parent / "chat_templates/qwen3_vl.jinja"


def test_conversations_of_text_agree_with_the_template(shared: Path, vl_template: Path) -> None:
    family = Family(
        renderer="qwen3_vl_instruct", tokenizer="qwen3", template=str(vl_template), features=NO_THINKING, tail="\n"
    )
    folder = shared / "tokenizers/qwen3"
    comparer = Comparer.of(family, get_tokenizer(str(folder)), folder)
    num_exact = sum(comparer.compare(messages) for messages in make_conversations(1200, NO_THINKING))
    assert num_exact >= family.min_exact


def flat(chunks: list[Any], pad: int) -> list[int]:
    """Tokens, with a pad for each image, as templates write it before the processor counts."""
    return [t for chunk in chunks for t in (chunk.tokens if isinstance(chunk, EncodedTextChunk) else [pad])]


def test_images_stand_where_the_template_has_them(renderer: Any, vl_template: Path) -> None:
    tokenizer = renderer.encoder.tokenizer
    template = None if "<parameter=" in str(tokenizer.chat_template) else vl_template.read_text(encoding="utf-8")
    prompt = renderer.build_generation_prompt(SEEN[:3])
    options = {"enable_thinking": False} if not renderer.thinks else {}
    theirs = tokenizer.apply_chat_template(
        SEEN[:3], chat_template=template, add_generation_prompt=True, tokenize=False, **options
    )
    if type(renderer).__name__ == "Qwen3VLRenderer":
        theirs += "<think>\n"
    if type(renderer).__name__ == "Qwen35Renderer" and renderer.keeps_thinking:  # the template drops the block
        theirs = theirs.replace("assistant\nOne", "assistant\n<think>\n\n</think>\n\nOne")
    written = flat(prompt.chunks, tokenizer.convert_tokens_to_ids("<|image_pad|>"))
    assert tokenizer.decode(written) == theirs
    assert [chunk.expected_tokens for chunk in prompt.chunks if isinstance(chunk, ImageChunk)] == NUM_TOKENS


def test_images_weigh_nothing_and_weights_stay_with_their_tokens(renderer: Any) -> None:
    for mode in TrainOnWhat:
        if mode == TrainOnWhat.CUSTOMIZED:
            continue
        model_input, weights = renderer.build_supervised_example(SEEN, mode)
        assert len(weights) == model_input.length
        position = 0
        for chunk in model_input.chunks:
            if isinstance(chunk, ImageChunk):
                assert weights[position : position + chunk.length] == [0.0] * chunk.length
            position += chunk.length
    tokens, weights = renderer.build_supervised_example(SEEN, TrainOnWhat.LAST_ASSISTANT_MESSAGE)
    num_trained = int(sum(weights))
    assert renderer.encoder.decode(tokens.chunks[-1].tokens[-num_trained:]).endswith("Small.<|im_end|>")


def test_the_prompt_is_the_beginning_of_the_example(renderer: Any) -> None:
    for index in (1, 3):
        prompt = renderer.build_generation_prompt(SEEN[:index])
        example, _ = renderer.build_supervised_example(SEEN[: index + 1], TrainOnWhat.ALL_ASSISTANT_MESSAGES)
        assert example.chunks[: len(prompt.chunks) - 1] == prompt.chunks[:-1]
        last = prompt.chunks[-1].tokens
        assert example.chunks[len(prompt.chunks) - 1].tokens[: len(last)] == last


def test_a_tool_may_show_an_image(renderer: Any) -> None:
    call: Any = {"type": "function", "function": {"name": "look", "arguments": {}}}
    messages: list[Message] = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": [image(64, 64)]},
    ]
    chunks = renderer.build_generation_prompt(messages).chunks
    assert [type(chunk) for chunk in chunks] == [EncodedTextChunk, ImageChunk, EncodedTextChunk]
    assert renderer.encoder.decode(chunks[0].tokens).endswith("<tool_response>\n<|vision_start|>")
    assert renderer.encoder.decode(chunks[2].tokens).startswith("<|vision_end|>\n</tool_response><|im_end|>")


def test_a_broken_image_is_refused(renderer: Any) -> None:
    with pytest.raises(InputError, match="give a whole PNG or JPEG file"):
        renderer.build_generation_prompt([{"role": "user", "content": [{"type": "image", "image": b"x"}]}])


def test_text_renderers_refuse_images(renderer: Any) -> None:
    plain = get_renderer("qwen3_instruct", renderer.encoder.tokenizer)
    with pytest.raises(InputError, match="takes no images"):
        plain.build_generation_prompt(SEEN[:1])


def test_thinking_opens_in_the_prompt_alone(shared: Path) -> None:
    renderer = get_renderer("qwen3_vl", get_tokenizer(str(shared / "tokenizers/qwen3")))
    answer: Message = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "yes"}],
    }
    asked: Message = {"role": "user", "content": "?"}
    tokens, weights = renderer.build_supervised_example([asked, answer], TrainOnWhat.ALL_ASSISTANT_MESSAGES)
    trained = [token for token, weight in zip(tokens.to_ints(), weights, strict=True) if weight]
    assert renderer.encoder.decode(trained) == "hm\n</think>\n\nyes<|im_end|>"
    assert renderer.parse_response(trained)[0] == answer
