"""The text part of a model. A model that takes images or sound as well has its text decoder's config and weights apart:
that decoder and the output projection are built, read and trained here, by the names that the whole model has for them.
"""

import re
from typing import Any

import torch
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MULTIMODAL_LM_MAPPING

from cookhouse.errors import InputError

_MAPPINGS = {
    "AutoModelForCausalLM": MODEL_FOR_CAUSAL_LM_MAPPING,
    "AutoModelForMultimodalLM": MODEL_FOR_MULTIMODAL_LM_MAPPING,
}


def text_config(config: Any) -> Any:
    """The part of a config that is of the text decoder: the config itself, if the model takes nothing but text.

    Raises:
        InputError: the model has no decoder of text alone.
    """
    if getattr(config, "is_encoder_decoder", False):
        raise InputError("it is an encoder-decoder; this engine runs decoders, which continue the text they are given")
    try:
        return config.get_text_config(decoder=True)
    except ValueError as error:
        raise InputError(f"its config has no one part of text: {error}") from error


def model_class(config: Any, *, whole: bool = False) -> Any:
    """The class of `transformers` that the model is made of, without what is not of its text unless `whole`.

    Raises:
        InputError: `transformers` has no class of it that continues text.
    """
    found = _MAPPINGS[auto_class(config)][type(config)]
    return found if whole or text_config(config) is config else _of_text(found)


def auto_class(config: Any) -> str:
    """The class of `transformers` that finds that of the whole model: the one by whose names its weights are published.

    Raises:
        InputError: there is none.
    """
    names = list(_MAPPINGS) if text_config(config) is config else list(reversed(_MAPPINGS))
    for name in names:
        if type(config) in _MAPPINGS[name]:
            return name
    raise InputError(f"transformers has no model of type {config.model_type} that continues text")


def empty_model(config: Any) -> Any:
    """The model without weights: shapes alone.

    Raises:
        InputError: there is no such model.
    """
    with torch.device("meta"):
        model = model_class(config)._from_config(config)
        model.tie_weights()  # which not every version of `transformers` has done by then
    return model


def _of_text(whole: Any) -> Any:
    """The same class, whose instances have no other part than text; those are never read from a checkpoint either."""

    def __init__(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807  # of the class made below
        whole.__init__(self, config, *args, **kwargs)
        _drop_others(self)

    # Its name and module are what `transformers` finds the names of older checkpoints by.
    return type(whole.__name__, (whole,), {"__init__": __init__, "__module__": whole.__module__})


def _drop_others(model: Any) -> None:
    """Remove what is neither the decoder nor the output projection; a checkpoint may hold it all the same."""
    kept = [model.get_decoder(), model.get_output_embeddings()]
    names = {name for name, module in model.named_modules() if any(module is other for other in kept)}
    above = {""} | {name[:end] for name in names for end, letter in enumerate(name) if letter == "."}
    for name in above:
        holder = model.get_submodule(name)
        paths = {child: f"{name}.{child}".lstrip(".") for child in (*holder._modules, *holder._parameters)}
        for child, path in paths.items():
            if path not in above | names:
                setattr(holder, child, None)
                _ignore(model, rf"^{re.escape(path)}(\.|$)")


def _ignore(model: Any, pattern: str) -> None:
    """Leave out what a checkpoint holds under such names. Versions of `transformers` keep a set, a list or nothing."""
    patterns = model._keys_to_ignore_on_load_unexpected
    kind = set if isinstance(patterns, set) else list
    model._keys_to_ignore_on_load_unexpected = kind((*(patterns or ()), pattern))
