"""Folders of models: a config, a tokenizer with the tokens of every family, and a chat template."""

import json
from pathlib import Path
from typing import Any

from tests.chat.forms import every_tokenizer

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_folder(folder: Path, config: dict[str, Any], template: str | None, *, bos: str | None = None) -> str:
    """A folder that a model is known by; `template` is text of a chat template, None for a base model."""
    folder.mkdir()
    every_tokenizer().save_pretrained(folder)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    (folder / "config.json").write_text(json.dumps({"hidden_size": 64, **config}))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, **({"bos_token": bos} if bos else {})}))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return str(folder)
