"""Programs that serve what is trained here, and adapters that they take."""


def serving_note(*, rank: int, train_unembed: bool) -> str | None:
    """A line on the adapter that others serve, for before it is trained; None: nothing has to be decided.

    vLLM 0.33 takes an adapter of `lm_head` where the class of the model has it in `embedding_modules`
    (`get_supported_lora_modules` in `vllm/lora/utils.py`); elsewhere the whole adapter is refused.
    """
    if rank == 0 or not train_unembed:
        return None
    return (
        "vLLM refuses an adapter on lm_head (train_unembed=true) for some families, such as Qwen2.5, Mistral and "
        "Gemma; train_unembed=false leaves it out, and a merged model is served either way"
    )
