"""Families are recognized by what they do: each row of the table with a folder of its own."""

import importlib.util
import re
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import pytest
from tests.models.catalog.folders import CHATML, make_folder

from cookhouse.models.catalog import FAMILIES, Family, default_renderer, families, family_of, why_template

LLAMA_BOS, DEEPSEEK_BOS = "<|begin_of_text|>", "<｜begin▁of▁sentence｜>"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A model that stands for a row of the table, and the renderer that it must get."""

    model_type: str
    vocab_size: int
    renderer: str = "template"
    template: str = ""
    """A file of shared/tokenizers, or `trl:` and a file of that package; empty: turns in ChatML."""
    bos: str | None = None

    @property
    def config(self) -> dict[str, object]:
        return {"model_type": self.model_type, "vocab_size": self.vocab_size}


_LLAMA3 = Row(
    model_type="llama", vocab_size=128256, renderer="llama3", template="llama3/chat_template.jinja", bos=LLAMA_BOS
)
ROWS = {
    "llama": _LLAMA3,
    "qwen2.5": Row(model_type="qwen2", vocab_size=151936, template="qwen3/other_templates/qwen2.5.jinja"),
    "qwen3": Row(model_type="qwen3", vocab_size=151936, renderer="qwen3", template="qwen3/chat_template.jinja"),
    "qwen3-vl": Row(
        model_type="qwen3_vl", vocab_size=151936, renderer="qwen3_vl_instruct", template="trl:qwen3_vl.jinja"
    ),
    "qwen3.5": Row(model_type="qwen3_5", vocab_size=248320, renderer="qwen3_5", template="qwen3_5/chat_template.jinja"),
    "deepseekv3": Row(
        model_type="deepseek_v3",
        vocab_size=129280,
        renderer="deepseekv3",
        template="deepseek_v3_1/chat_template.jinja",
        bos=DEEPSEEK_BOS,
    ),
    "kimi_k2": Row(model_type="kimi_k2", vocab_size=163840, renderer="kimi_k2", template="kimi_k2/chat_template.jinja"),
    "gpt-oss": Row(
        model_type="gpt_oss",
        vocab_size=201088,
        renderer="gpt_oss_no_sysprompt",
        template="gpt_oss/chat_template.jinja",
    ),
    "smollm2": Row(model_type="llama", vocab_size=49152),
    "gemma-2": Row(model_type="gemma2", vocab_size=256000),
    "gemma-3": Row(model_type="gemma3_text", vocab_size=262144),
    "gemma-4": Row(model_type="gemma4", vocab_size=262144),
    "mistral": Row(model_type="mistral", vocab_size=32768),
    "phi-4": Row(model_type="phi3", vocab_size=100352),
    "olmo-2": Row(model_type="olmo2", vocab_size=100352),
    "glm-4": Row(model_type="glm4", vocab_size=151552),
    "granite": Row(model_type="granite", vocab_size=49155),
    "command": Row(model_type="cohere2", vocab_size=256000),
}
"""By the name of the row."""

MORE = {
    "Qwen3-2507": replace(ROWS["qwen3"], renderer="qwen3_instruct", template="trl:qwen3_instruct_2507.jinja"),
    "Qwen3 that always thinks": replace(ROWS["qwen3"], renderer="template", template="trl:qwen3_6.jinja"),
    "Qwen3.5, small": replace(
        ROWS["qwen3.5"], renderer="qwen3_5_disable_thinking", template="trl:qwen3_5_nothink.jinja"
    ),
    "Llama 3.0": replace(_LLAMA3, template="llama3/other_templates/llama-3.0.jinja"),
    "DeepSeek-R1": replace(ROWS["deepseekv3"], renderer="template", template="trl:deepseek_r1_distill.jinja"),
    "Kimi-K2-Instruct": replace(
        ROWS["kimi_k2"], renderer="kimi_k2_instruct", template="kimi_k2/other_templates/kimi-k2-instruct.jinja"
    ),
}
"""Further kinds of model that the table has renderers for."""


def template_of(row: Row, shared: Path) -> str:
    kind, _, name = row.template.rpartition(":")
    if not row.template:
        return CHATML
    if not kind:
        return (shared / "tokenizers" / name).read_text(encoding="utf-8")
    found = importlib.util.find_spec("trl")
    if found is None or found.origin is None:
        pytest.skip("trl has this template, and is not installed")
    return (Path(found.origin).parent / "chat_templates" / name).read_text(encoding="utf-8")


def test_every_row_has_a_model_that_stands_for_it() -> None:
    assert ROWS.keys() == FAMILIES.keys()


@pytest.mark.parametrize("name", ROWS)
def test_a_row_takes_no_other_rows_models(tmp_path: Path, name: str) -> None:
    """Would catch a new row, or a changed one, that takes the folders of another."""
    assert family_of(make_folder(tmp_path / "model", ROWS[name].config, None)) == name


@pytest.mark.parametrize("name", [*ROWS, *MORE])
def test_the_renderer_is_the_one_that_writes_what_the_template_writes(shared: Path, tmp_path: Path, name: str) -> None:
    row = ROWS.get(name) or MORE[name]
    model = make_folder(tmp_path / "model", row.config, template_of(row, shared), bos=row.bos)
    assert default_renderer(model) == row.renderer


def test_a_row_with_a_vocabularys_size_takes_no_renderer_from_the_others(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a row added for one vocabulary after which models of its size lose their renderer."""
    row = Family(name="new", model_types=("llama",), vocab_size=_LLAMA3.vocab_size)
    rows = MappingProxyType({**FAMILIES, "new": row})
    monkeypatch.setattr(families, "FAMILIES", rows)
    monkeypatch.setattr("cookhouse.models.catalog.lookup.FAMILIES", rows)
    model = make_folder(tmp_path / "model", _LLAMA3.config, template_of(_LLAMA3, shared), bos=LLAMA_BOS)
    assert (family_of(model), default_renderer(model)) == ("new", "llama3")


XML_CALLS = CHATML.replace(
    "{{ m.content }}",
    "{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n<function={{ c.function.name }}>\n"
    "{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>{{ v }}</parameter>{% endfor %}"
    "</function></tool_call>{% endfor %}",
)


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (XML_CALLS, "qwen3 would write another format"),
        (CHATML.replace("{% for", "<|im_start|>system\nYou are Pip.<|im_end|>\n{% for", 1), "You are Pip"),
        (CHATML, "qwen3 would write another format"),
    ],
    ids=["its own calls", "its own persona", "no form for tools"],
)
def test_a_template_of_its_own_is_what_a_model_is_trained_in(tmp_path: Path, template: str, why: str) -> None:
    """Would catch calls in another model's form, and a persona that training leaves out."""
    model = make_folder(tmp_path / "Qwen3-8B", ROWS["qwen3"].config, template)
    assert default_renderer(model) == "template"
    assert re.search(why, why_template(model))
