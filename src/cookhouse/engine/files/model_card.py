"""README.md of an exported folder, in the form that model hubs read: what it is, how to load it, where it came from."""

import json
from collections.abc import Mapping

from cookhouse.assets import resolve_model
from cookhouse.engine.contract import LoraSpec
from cookhouse.models.names import plain_name

CARD = "README.md"


def load_peft_lines(base_model: str, folder: str, auto_class: str) -> list[str]:
    """Python that loads an adapter over its base model, in the precision in which it equals the merged model, and its
    tokenizer.

    `auto_class`: of `transformers`, by which the base model is loaded.
    """
    is_embedded = resolve_model(base_model) != plain_name(base_model)
    source = f"resolve_model({base_model!r})" if is_embedded else repr(plain_name(base_model))
    return [
        *(["from cookhouse.assets import resolve_model"] if is_embedded else []),
        "import peft, transformers",
        f"name = {source}",
        f"base = transformers.{auto_class}.from_pretrained(name, dtype='float32')",
        f"model = peft.PeftModel.from_pretrained(base, {folder!r})",
        _tokenizer_line(folder),
    ]


def load_merged_lines(folder: str, precision: str, auto_class: str) -> list[str]:
    """Python that loads a merged model in the precision in which it was written, and its tokenizer."""
    return [
        "import transformers",
        f"model = transformers.{auto_class}.from_pretrained({folder!r}, dtype={precision!r})",
        _tokenizer_line(folder),
    ]


def _tokenizer_line(folder: str) -> str:
    return f"tokenizer = transformers.AutoTokenizer.from_pretrained({folder!r})"


def peft_card(base_model: str, lora: LoraSpec, origin: Mapping[str, str], auto_class: str) -> str:
    """Card of a PEFT folder; `origin` says by name where it came from, such as its recipe."""
    about = f"A LoRA adapter of rank {lora.rank} over `{base_model}`, in the format of the library `peft`."
    note = "In bfloat16 the base model is rounded, and the outputs with it; in float32 they are those of training."
    return _card(base_model, "peft", about, load_peft_lines(base_model, ".", auto_class), note, origin)


def merged_card(base_model: str, precision: str, origin: Mapping[str, str], auto_class: str) -> str:
    """Card of a merged model."""
    about = f"`{base_model}`, fine-tuned: what was learned is added to its weights, which are {precision}."
    lines = load_merged_lines(".", precision, auto_class)
    return _card(base_model, "transformers", about, lines, "", origin)


def _card(base_model: str, library: str, about: str, lines: list[str], note: str, origin: Mapping[str, str]) -> str:
    head = ["---", f"base_model: {_yaml(base_model)}", f"library_name: {library}", "pipeline_tag: text-generation"]
    code = ["In this folder:", "", *(f"    {line}" for line in lines)]
    came_from = [f"- {name}: `{_code(text)}`" for name, text in origin.items()]
    return "\n".join(
        [
            *head,
            "---",
            "",
            "# Fine-tuned with cookhouse",
            "",
            about,
            "",
            *code,
            *(["", note] if note else []),
            *(["", "Where it came from:", "", *came_from] if came_from else []),
            "",
        ]
    )


def _yaml(text: str) -> str:
    """A YAML string; JSON's are."""
    return json.dumps(text)


def _code(text: str) -> str:
    """One line between backticks."""
    return " ".join(text.replace("`", "'").split())
