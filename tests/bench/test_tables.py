"""Catches a figure of which nobody can tell how large the model was, and a size that is not the model's."""

import math
import re
from collections.abc import Iterator
from pathlib import Path

from bench.shapes import _small
from transformers import Qwen3Config

from cookhouse.engine.model.pretrained import num_parameters
from cookhouse.models.catalog.weights import weight_shapes

ROOT = Path(__file__).parents[2]
NO_MODEL = ("none", "-")
_MEASURED = re.compile(r"tokens? per second|seconds per step|peak memory|GRPOTrainer|pairs per second|items of GSM8K")


def tables(file: str) -> Iterator[list[dict[str, str]]]:
    """The rows of each table of a page, by column."""
    blocks = re.findall(r"(?:^\|.*\n)+", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    for block in blocks:
        header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        yield [dict(zip(header, row, strict=False)) for row in rows]


def test_rows_name_the_size_of_the_model() -> None:
    with_sizes = [row for rows in tables("bench/README.md") for row in rows if {"model", "claim"} <= set(row)]
    assert len(with_sizes) > 10
    for row in with_sizes:
        assert row["model"] in NO_MODEL or re.fullmatch(r"[\d.]+ M", row["model"]), row
    for rows in tables("bench/README.md"):
        for row in rows:
            claim = " ".join(row.values())
            if "claim" in row and _MEASURED.search(claim) and "rendered" not in claim:
                assert row.get("model") not in (None, *NO_MODEL) or "1 client" in row, row


def test_the_sizes_are_those_of_the_models(tmp_path: Path) -> None:
    sizes = {"": sum(math.prod(shape) for shape in weight_shapes("cookhouse/tiny").values())}
    for shape in ("512x8", "256x2x151936"):
        Qwen3Config(**_small(shape)).save_pretrained(tmp_path / shape)
        sizes[f"random:{shape}"] = num_parameters(str(tmp_path / shape))
    of_recipes = next(rows for rows in tables("README.md") if "recipe" in rows[0])
    assert f"result with {sizes[''] / 1e6:.2f} M parameters" in of_recipes[0]
    named = {row["model"]: row for rows in tables("bench/README.md") for row in rows if "model" in row}
    for name, count in sizes.items():
        size = f"{count / 1e6:.2f} M" if count < 1e7 else f"{count / 1e6:.1f} M"
        assert name in named[size]["command"] if name else size in named
