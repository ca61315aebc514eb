"""Images in messages: read from where the caller has them, checked, and counted in tokens."""

import base64
import binascii
import hashlib
import io
import json
import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from tinker.types import ImageChunk

from cookhouse.errors import InputError
from cookhouse.extras import install_command

MAX_IMAGE_BYTES = 20 * 2**20
"""Of the file."""
MAX_IMAGE_PIXELS = 50_000_000
"""Of the picture: a small file may unpack to a large one."""
_MAX_ASPECT_RATIO = 200
_CACHED_IMAGES = 1024
_FORMATS: dict[str, Literal["png", "jpeg"]] = {"PNG": "png", "JPEG": "jpeg"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Vision:
    """A family's way to cut an image into patches; a token is a square of `merge_size` × `merge_size` of these."""

    patch_size: int
    """Pixels on a side."""
    merge_size: int
    min_pixels: int
    """What a smaller image is enlarged to, about."""
    max_pixels: int

    def num_tokens(self, width: int, height: int) -> int:
        """Tokens of an image of that many pixels, resized as Qwen2-VL's processor does: both sides to multiples of a
        token's, the area to within the limits, the aspect ratio kept as far as that allows.

        Raises:
            InputError: one side is more than 200 times the other.
        """
        if max(width, height) > _MAX_ASPECT_RATIO * min(width, height):
            raise InputError(
                f"an image of {width} × {height} pixels is too narrow; one side may be {_MAX_ASPECT_RATIO} times "
                "the other: cut it"
            )
        side = self.patch_size * self.merge_size
        rows, columns = round(height / side), round(width / side)
        if rows * columns * side**2 > self.max_pixels:
            scale = math.sqrt(height * width / self.max_pixels)
            rows = max(1, math.floor(height / scale / side))
            columns = max(1, math.floor(width / scale / side))
        elif rows * columns * side**2 < self.min_pixels:
            scale = math.sqrt(self.min_pixels / (height * width))
            rows, columns = math.ceil(height * scale / side), math.ceil(width * scale / side)
        return rows * columns


def vision_of(tokenizer_folder: str, default: Vision) -> Vision:
    """Settings of the preprocessor_config.json next to a local tokenizer; a model by hub id has the family's default.

    Raises:
        InputError: the file cannot be read, or holds no such numbers.
    """
    path = Path(tokenizer_folder) / "preprocessor_config.json"
    if not path.is_file():
        return default
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        size = config.get("size") or {}
        vision = Vision(
            patch_size=int(config.get("patch_size", default.patch_size)),
            merge_size=int(config.get("merge_size", default.merge_size)),
            min_pixels=int(config.get("min_pixels") or size.get("shortest_edge", default.min_pixels)),
            max_pixels=int(config.get("max_pixels") or size.get("longest_edge", default.max_pixels)),
        )
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if min(vision.patch_size, vision.merge_size, vision.min_pixels, vision.max_pixels) < 1:
        raise InputError(f"{path}: patch_size, merge_size and the limits of size must be positive")
    return vision


class ImageReader:
    """Makes chunks of images. Each is decoded once to see that it is whole; bytes are sent as they came."""

    def __init__(self, vision: Vision) -> None:
        self._vision = vision
        self._cache: dict[bytes, tuple[Literal["png", "jpeg"], int]] = {}

    def read(self, image: str | bytes) -> ImageChunk:
        """The chunk of an image: the bytes of a file, a data URL, or the path of a file.

        Raises:
            InputError: no such file, too large, neither PNG nor JPEG, broken; or Pillow is not installed.
        """
        data = image if isinstance(image, bytes) else _load(image)
        if len(data) > MAX_IMAGE_BYTES:
            raise _too_large()
        digest = hashlib.sha256(data).digest()
        if digest not in self._cache:
            if len(self._cache) >= _CACHED_IMAGES:
                self._cache.clear()
            kind, width, height = _check(data)
            self._cache[digest] = kind, self._vision.num_tokens(width, height)
        kind, num_tokens = self._cache[digest]
        return ImageChunk(data=data, format=kind, expected_tokens=num_tokens)


def data_url(data: bytes) -> str:
    """The bytes of an image as a data URL, whose type is read from the bytes where they are read."""
    return f"data:image;base64,{base64.b64encode(data).decode()}"


def _load(address: str) -> bytes:
    if address.startswith("data:"):
        head, comma, body = address.partition(",")
        if not comma or not head.endswith(";base64"):
            raise InputError("an image's data URL must look like data:image/png;base64,…")
        if len(body) * 3 // 4 > MAX_IMAGE_BYTES + 2:
            raise _too_large()
        try:
            return base64.b64decode(body, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InputError(f"an image's data URL is not base64: {error}") from error
    if "://" in address[:16]:
        raise InputError(
            f"an image is never fetched from an address ({address[:80]!r}); download it, and give its path, its bytes "
            "or a data URL"
        )
    return _read_file(address)


def _read_file(address: str) -> bytes:
    name = repr(address if len(address) <= 200 else f"{address[:200]}…")
    try:
        is_file = Path(address).is_file()
        data = _read_at_most(Path(address)) if is_file else b""
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"the image {name} cannot be read: {reason}") from error
    if not is_file:
        raise InputError(f"there is no image {name}; give the path of a file, its bytes or a data URL")
    return data


def _read_at_most(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_IMAGE_BYTES + 1)


def _check(data: bytes) -> tuple[Literal["png", "jpeg"], int, int]:
    """Format, width and height of an image that decodes as a whole."""
    try:
        from PIL import Image
    except ImportError as error:
        raise InputError(f"images need Pillow: {install_command('vision')}") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sizes, which are checked here, and of odd metadata
            with Image.open(io.BytesIO(data), formats=tuple(_FORMATS)) as image:
                width, height = image.size
                if width * height > MAX_IMAGE_PIXELS:
                    raise InputError(
                        f"an image of {width} × {height} pixels is too large; {MAX_IMAGE_PIXELS:,} are allowed, "
                        "so scale it"
                    )
                image.load()
                kind = _FORMATS[cast(str, image.format)]
    except InputError:
        raise
    except Exception as error:  # decoders raise all kinds on hostile bytes
        raise InputError(f"an image cannot be read ({error}); give a whole PNG or JPEG file") from error
    return kind, width, height


def _too_large() -> InputError:
    return InputError(f"an image has more than {MAX_IMAGE_BYTES // 2**20} MiB; scale it")
