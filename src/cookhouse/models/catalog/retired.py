"""Models that the hosted service has retired, and what it names in their place. It says itself what it offers today."""

from collections.abc import Collection, Mapping

from cookhouse.models.names import plain_name

AS_OF = "2026-09-02"
"""The last retirement that is in the table."""

SUCCESSORS: Mapping[str, str] = {
    "Qwen/Qwen3.6-27B": "Qwen/Qwen3.8-27B",
    "Qwen/Qwen3.5-27B": "Qwen/Qwen3.6-27B",
    "Qwen/Qwen3.5-35B-A3B": "Qwen/Qwen3.6-35B-A3B",
    "Qwen/Qwen3-32B": "Qwen/Qwen3.6-27B",
    "Qwen/Qwen3-30B-A3B": "Qwen/Qwen3.6-35B-A3B",
    "Qwen/Qwen3-30B-A3B-Instruct-2507": "Qwen/Qwen3.6-35B-A3B",
    "Qwen/Qwen3-30B-A3B-Base": "Qwen/Qwen3.5-35B-A3B-Base",
    "Qwen/Qwen3-VL-30B-A3B-Instruct": "Qwen/Qwen3.6-35B-A3B",
    "Qwen/Qwen3-235B-A22B-Instruct-2507": "Qwen/Qwen3.5-397B-A17B",
    "Qwen/Qwen3-VL-235B-A22B-Instruct": "Qwen/Qwen3.5-397B-A17B",
    "Qwen/Qwen3-4B-Instruct-2507": "Qwen/Qwen3.5-4B",
    "Qwen/Qwen3-8B-Base": "Qwen/Qwen3.5-9B-Base",
    "meta-llama/Llama-3.1-8B": "Qwen/Qwen3.5-9B-Base",
    "meta-llama/Llama-3.2-3B": "Qwen/Qwen3.5-9B-Base",
    "meta-llama/Llama-3.2-1B": "Qwen/Qwen3.5-9B-Base",
    "meta-llama/Llama-3.1-8B-Instruct": "Qwen/Qwen3.5-9B",
    "meta-llama/Llama-3.1-70B": "Qwen/Qwen3.5-35B-A3B-Base",
    "meta-llama/Llama-3.3-70B-Instruct": "Qwen/Qwen3.6-35B-A3B",
    "deepseek-ai/DeepSeek-V3.1-Base": "Qwen/Qwen3.5-35B-A3B-Base",
    "moonshotai/Kimi-K2-Thinking": "moonshotai/Kimi-K2.6",
    "moonshotai/Kimi-K2.5": "moonshotai/Kimi-K2.6",
}


def successors(model: str) -> list[str]:
    """Successors of a model, one after the other; the newest is last."""
    found: list[str] = []
    name = plain_name(model)
    while (name := SUCCESSORS.get(name, "")) and name not in found:
        found.append(name)
    return found


def offered_as(model: str, offered: Collection[str]) -> str | None:
    """The name that a service offers a model by, whatever the context that it is rented out with; None: it does not."""
    if model in offered:
        return model
    return next((name for name in offered if plain_name(name) == plain_name(model)), None)


def successor_among(model: str, offered: Collection[str]) -> str | None:
    """The name of the nearest successor of a model that a service offers; None: it offers none."""
    found = (offered_as(name, offered) for name in successors(model))
    return next((name for name in found if name is not None), None)
