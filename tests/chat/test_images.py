"""Images in messages: what is read, what is refused, and how many tokens each has."""

import base64
import builtins
import io
import json
import random
from pathlib import Path
from typing import Any

import pytest

from cookhouse.chat import images, parse_messages
from cookhouse.chat.families.qwen3_vl import QWEN3_VISION
from cookhouse.chat.images import ImageReader, Vision, data_url, vision_of
from cookhouse.errors import InputError

Image = pytest.importorskip("PIL.Image", reason="needs the extra 'vision'")


def picture(width: int, height: int, kind: str = "PNG", mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    Image.new(mode, (width, height)).save(file, kind)
    return file.getvalue()


@pytest.fixture
def reader() -> ImageReader:
    return ImageReader(QWEN3_VISION)


def test_token_counts_are_those_of_the_processor() -> None:
    """Catches rounding that differs from what the model's own processor does."""
    module = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    generator = random.Random(0)
    visions = [
        QWEN3_VISION,
        Vision(patch_size=14, merge_size=2, min_pixels=56 * 56, max_pixels=28 * 28 * 1280),
        Vision(patch_size=16, merge_size=1, min_pixels=1, max_pixels=4096),
    ]
    for vision in visions:
        processor = module.Qwen2VLImageProcessorPil(
            patch_size=vision.patch_size,
            merge_size=vision.merge_size,
            size={"shortest_edge": vision.min_pixels, "longest_edge": vision.max_pixels},
        )
        for _ in range(2000):
            width, height = (int(2 ** generator.uniform(0, 13)) for _ in range(2))
            if max(width, height) / min(width, height) > 200:
                continue
            patches = processor.get_number_of_image_patches(height, width, {})
            assert vision.num_tokens(width, height) == patches // vision.merge_size**2, (width, height)


@pytest.mark.parametrize("size", [(100, 50), (640, 480), (33, 17), (1000, 1500), (16, 2048)])
def test_an_image_has_as_many_tokens_as_the_processor_makes_of_it(reader: ImageReader, size: tuple[int, int]) -> None:
    module = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    processor = module.Qwen2VLImageProcessorPil(
        patch_size=16, merge_size=2, size={"shortest_edge": 65_536, "longest_edge": 16_777_216}
    )
    data = picture(*size)
    [grid] = processor(Image.open(io.BytesIO(data)), return_tensors="np")["image_grid_thw"].tolist()
    assert reader.read(data).length == grid[0] * grid[1] * grid[2] // 4


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P"])
def test_bytes_a_data_url_and_a_file_are_the_same_image(reader: ImageReader, tmp_path: Path, mode: str) -> None:
    data = picture(64, 64, mode=mode)
    (tmp_path / "a.png").write_bytes(data)
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    chunks = [reader.read(image) for image in (data, data_url(data), url, str(tmp_path / "a.png"))]
    assert all(chunk == chunks[0] for chunk in chunks)
    assert (chunks[0].data, chunks[0].format, chunks[0].expected_tokens) == (data, "png", 64)


def test_a_jpeg_says_so_whatever_its_url_says(reader: ImageReader) -> None:
    data = picture(64, 64, "JPEG")
    assert reader.read(f"data:image/png;base64,{base64.b64encode(data).decode()}").format == "jpeg"


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (b"", "cannot be read"),
        (b"<svg/>", "give a whole PNG or JPEG file"),
        (picture(8, 8, "GIF"), "give a whole PNG or JPEG file"),
        (picture(64, 64)[:-20], "cannot be read"),
        (picture(64, 64, "JPEG")[:-200], "cannot be read"),
        (picture(2, 402), "too narrow"),
        (picture(7100, 7100, mode="1"), "50,000,000 are allowed"),
        ("data:image/png,abc", "must look like data:image/png;base64"),
        ("data:image/png;base64,!!!", "is not base64"),
        ("https://example.org/a.png", "never fetched from an address"),
        ("file:///etc/passwd", "never fetched from an address"),
        ("nowhere.png", "there is no image 'nowhere.png'"),
        ("a\0b", "(there is no image|cannot be read)"),
        ("x" * 5000, "(there is no image|cannot be read)"),
        (".", "there is no image"),
        (__file__, "give a whole PNG or JPEG file"),
    ],
    ids=range(16),
)
def test_what_is_no_image_is_refused_with_the_reason(reader: ImageReader, image: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        reader.read(image)
    assert len(str(caught.value)) < 500


def test_large_files_are_refused_before_they_are_decoded(
    reader: ImageReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "MAX_IMAGE_BYTES", 100)
    (tmp_path / "a.png").write_bytes(bytes(101))
    for image in (bytes(101), data_url(bytes(103)), str(tmp_path / "a.png")):
        with pytest.raises(InputError, match="more than"):
            reader.read(image)


def test_without_pillow_the_extra_is_named(reader: ImageReader, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def fail(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "PIL":
            raise ImportError(name)
        return imported(name, *args, **kwargs)

    data = picture(8, 8)
    monkeypatch.setattr(builtins, "__import__", fail)
    with pytest.raises(InputError, match=r" install .*\[vision\]"):
        reader.read(data)


def test_a_local_model_says_how_it_sees(tmp_path: Path) -> None:
    assert vision_of(str(tmp_path), QWEN3_VISION) == QWEN3_VISION
    config = tmp_path / "preprocessor_config.json"
    config.write_text(json.dumps({"patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 1003520}))
    expected = Vision(patch_size=14, merge_size=2, min_pixels=3136, max_pixels=1_003_520)
    assert vision_of(str(tmp_path), QWEN3_VISION) == expected
    config.write_text(json.dumps({"patch_size": 16, "size": {"shortest_edge": 10, "longest_edge": 20}}))
    assert vision_of(str(tmp_path), expected) == Vision(patch_size=16, merge_size=2, min_pixels=10, max_pixels=20)
    for broken in ("[]", "{", '{"patch_size": 0}', '{"patch_size": "x"}', '{"size": 3}'):
        config.write_text(broken)
        with pytest.raises(InputError, match=r"preprocessor_config\.json"):
            vision_of(str(tmp_path), expected)


@pytest.mark.parametrize(
    ("part", "address"),
    [
        ({"type": "image", "image": "a.png"}, "a.png"),
        ({"type": "image", "image": b"ab"}, "data:image;base64,YWI="),
        ({"type": "image", "image": {"bytes": b"ab", "path": "a.png"}}, "data:image;base64,YWI="),
        ({"type": "image", "image": {"bytes": None, "path": "a.png"}}, "a.png"),
        ({"type": "image_url", "image_url": {"url": "data:x"}}, "data:x"),
        ({"type": "image_url", "image_url": "data:x"}, "data:x"),
    ],
)
def test_an_image_part_is_read_in_any_of_its_forms(part: Any, address: str) -> None:
    [message] = parse_messages([{"role": "user", "content": [part]}])
    assert message["content"] == [{"type": "image", "image": address}]
    json.dumps(message)


@pytest.mark.parametrize(
    ("role", "part", "reason"),
    [
        ("assistant", {"type": "image", "image": "a.png"}, "an image belongs on a message of role user or tool"),
        ("system", {"type": "image", "image": "a.png"}, "an image belongs on a message of role user or tool"),
        ("user", {"type": "image", "image": 3}, "an image must be a data URL, the path of a file or its bytes"),
        ("user", {"type": "image"}, "not nothing"),
        ("user", {"type": "image_url", "image_url": {}}, "not nothing"),
    ],
)
def test_an_image_part_that_is_none_is_refused(role: str, part: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse_messages([{"role": role, "content": [part]}])
