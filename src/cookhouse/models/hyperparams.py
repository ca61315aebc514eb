"""Rules of thumb for hyperparameters, and the size of an adapter."""

import math
import re

from cookhouse.errors import InputError
from cookhouse.models.catalog import FAMILIES, dims, family_of
from cookhouse.models.catalog.weights import weight_shapes

_BASE_RATE = 5e-5
_LORA_FACTOR = 10.0
_REFERENCE_HIDDEN = 2000
_REWARD_EXPONENT = 1.17
"""How the best rate by reward falls with the hidden size: 2e-3 at a width of 192 (`cookhouse/tiny`), 4e-4 at 576
(SmolLM2-135M-Instruct on GSM8K), and the published 4e-5 at 4,096 (Llama-3.1-8B)."""
_FAR = 10.0
"""Factor between two learning rates from which on it is worth a word."""
_ATTN = re.compile(r"\.(self_attn\.\w+_proj(_with_mqa)?|linear_attn\.(in_proj_\w+|out_proj))\.weight$")
_MLP = re.compile(r"\.mlp\.(shared_experts?\.)?\w+_proj\.weight$")
_EXPERT = re.compile(r"\.mlp\.experts\.(\d+)\.\w+_proj\.weight$")
_STACKED_EXPERTS = re.compile(r"\.(mlp\.experts\.down_proj(_blocks)?|block_sparse_moe\.output_linear\.weight)$")
_BESIDE_TEXT = re.compile(r"(^|\.)(vision|visual|audio)\w*\.")
_LAYER = re.compile(r"\.layers\.(\d+)\.")
_EMBEDDING = re.compile(r"(^|\.)embed_tokens\.weight$")
_OUTPUT = re.compile(r"(^|\.)lm_head\.weight$")


def get_lr(model: str, *, is_lora: bool = True) -> float:
    """A good learning rate for supervised training: 5e-5 · 10 (LoRA) · (2000 / hidden size)^e, e by family.

    Raises:
        InputError: nobody has published e for the model's family, or its hidden size is not known.
    """
    try:
        return _by_rule(model, is_lora=is_lora)[0]
    except InputError as error:
        raise InputError(f"{error}; set learning_rate to a number, such as 2e-4") from error


def auto_lr(model: str, usual: float, *, is_lora: bool = True) -> tuple[float, str]:
    """Value of `learning_rate=auto` where conversations are learned: `get_lr`, or `usual`, the recipe's own default,
    where there is no rule; and which of them it is, in words.
    """
    try:
        rate, rule = _by_rule(model, is_lora=is_lora)
    except InputError as error:
        return usual, f"learning_rate=auto is {usual:g}, the recipe's default: {error}"
    return rate, f"learning_rate=auto is {rate:.3g}, by the rule for {rule}"


def conversation_lr(model: str, *, is_lora: bool = True) -> tuple[float, str] | None:
    """`get_lr`, and which rule that is, in words; None where there is none."""
    try:
        rate, rule = _by_rule(model, is_lora=is_lora)
    except InputError:
        return None
    return rate, f"the rule for {rule}"


def reward_lr(model: str, published: float, published_model: str, *, is_lora: bool = True) -> tuple[float, str] | None:
    """A rate that was published for one model to learn by reward or from pairs, for a model of another width: times
    (published width / width)^1.17, as rates that were measured differ; a tenth of it for all weights. With the rule,
    in words; None where a width is not known.
    """
    sizes, reference = dims(model), dims(published_model)
    if sizes is None or reference is None:
        return None
    rate = published * float((reference.hidden_size / sizes.hidden_size) ** _REWARD_EXPONENT)
    said = f"the rule by reward for width {sizes.hidden_size:,}, from that of width {reference.hidden_size:,}"
    return rate if is_lora else rate / _LORA_FACTOR, said


def _by_rule(model: str, *, is_lora: bool) -> tuple[float, str]:
    """The rate of `get_lr`, and which rule that is. Raises `InputError` where there is none."""
    family = family_of(model)
    exponent = FAMILIES[family].lr_exponent if family is not None else None
    if exponent is None:
        known = ", ".join(name for name, other in FAMILIES.items() if other.own_exponent is not None)
        raise InputError(
            f"there is no published rule for the learning rate of {model!r} (family {family or 'unknown'}; there is "
            f"one for {known})"
        )
    sizes = dims(model)
    if sizes is None:
        raise InputError(f"the hidden size of {model!r} is not known, on which its learning rate depends")
    factor = _LORA_FACTOR if is_lora else 1.0
    rate = _BASE_RATE * factor * float((_REFERENCE_HIDDEN / sizes.hidden_size) ** exponent)
    return rate, f"{family} of width {sizes.hidden_size:,}"


def rate_notes(model: str, learning_rate: float, *, is_lora: bool = True, by_reward: bool = False) -> list[str]:
    """A sentence if a learning rate is far from `get_lr`, where there is one; none says so of itself.

    The rule is for supervised training: by reward, lower rates are usual, and only a higher one is worth a word.
    """
    try:
        usual = get_lr(model, is_lora=is_lora)
    except InputError:  # there is no rule
        return []
    ratio = learning_rate / usual
    if ratio < _FAR and (by_reward or ratio > 1 / _FAR):
        return []
    times = f"{ratio:,.0f} times" if ratio >= 1 else f"1/{1 / ratio:,.0f} of"
    return [
        f"learning_rate is {learning_rate:g}, {times} the {usual:.2g} that the rule for this model gives "
        "(learning_rate=auto)"
    ]


def lora_parameter_count(
    model: str,
    rank: int,
    *,
    train_attn: bool = True,
    train_mlp: bool = True,
    train_unembed: bool = True,
    include_experts: bool = True,
) -> int:
    """Parameters of an adapter: rank · Σ(features in + features out) over the matrices it adapts, all of them of text.
    The experts of a layer share the half on the side of the hidden dimension: it counts once for each projection.

    Reads the headers of the safetensors files of an embedded model, a local folder or a hub id, never the weights.

    Raises:
        InputError: there is no such model, the hub cannot be reached, or it has no safetensors file that can be read.
    """
    shapes = weight_shapes(model)
    sizes = dims(model)
    num_layers = math.inf if sizes is None or sizes.num_layers is None else sizes.num_layers
    unembed = _OUTPUT if any(_OUTPUT.search(name) for name in shapes) else _EMBEDDING
    num_features = 0
    for name, shape in shapes.items():
        layer = _LAYER.search(name)
        if _BESIDE_TEXT.search(name):
            continue
        if layer and int(layer[1]) >= num_layers:  # predicts further tokens: stored with the model, and no part of it
            continue
        is_adapted = (
            (train_attn and _ATTN.search(name))
            or (train_mlp and _MLP.search(name))
            or (train_unembed and unembed.search(name))
        )
        if is_adapted:
            num_features += sum(shape)
        elif train_mlp and include_experts and (expert := _EXPERT.search(name)):
            is_down = name.endswith(".down_proj.weight")
            hidden, inner = shape if is_down else shape[::-1]
            num_features += inner + (hidden if expert[1] == "0" else 0)
        elif train_mlp and include_experts and _STACKED_EXPERTS.search(name):
            num_features += _num_stacked_features(shape, None if sizes is None else sizes.hidden_size)
    return rank * num_features


def _num_stacked_features(shape: tuple[int, ...], hidden: int | None) -> int:
    """Features of all experts of a layer, from the shape of their down projections in one tensor.

    That is (experts, inner, hidden) or (experts, hidden, inner) or, as 4-bit floats, (experts, hidden, blocks, bytes of
    a block). Gate and up projections have the same two dimensions. Of unknown width, the first is held for the hidden.
    """
    num_experts, out, *rest = shape
    inner = 2 * math.prod(rest) if len(rest) == 2 else rest[0]
    if len(rest) == 1 and inner == hidden:
        out, inner = inner, out
    return 3 * (out + num_experts * inner)
