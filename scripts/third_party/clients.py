"""Clients that others have published, and how each is tried."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Client:
    name: str
    alone: Sequence[str]
    """Installed without what they require."""
    imports: Sequence[str] = ()
    """What they import besides, with what that requires."""
    commands: Sequence[Sequence[str]]
    """Programs of the client's environment, in a folder with `files/`. MODEL is the folder of the model that is served,
    WORK that folder."""


CLIENTS = (
    Client(
        name="cookbook",
        alone=["tinker-cookbook==0.6.1", "tml-renderers"],
        imports=["blobfile", "pylatexenc", "termcolor", "tiktoken"],
        commands=[
            (
                *("python", "-m", "tinker_cookbook.recipes.chat_sl.train", "dataset=WORK/conversations.jsonl"),
                *("model_name=MODEL", "renderer_name=qwen3", "batch_size=8", "max_steps=3", "lora_rank=8"),
                *("eval_every=0", "learning_rate=2e-3", "max_length=256", "log_path=WORK/sl"),
            ),
            (
                *("python", "-m", "tinker_cookbook.recipes.math_rl.train", "env=arithmetic", "model_name=MODEL"),
                *("renderer_name=qwen3", "group_size=4", "groups_per_batch=3", "max_tokens=6", "lora_rank=8"),
                *("max_steps=2", "eval_every=0", "save_every=2", "loss_fn=importance_sampling"),
                *("learning_rate=1e-4", "log_path=WORK/rl"),
            ),
        ],
    ),
    Client(
        name="art",
        alone=["openpipe-art==0.5.18", "tinker==0.18.2", "tinker-cookbook==0.3.0"],
        imports=["litellm==1.82.0", "nest-asyncio", "openai==2.14.0", "polars", "setproctitle", "tblib"],
        commands=[("python", "WORK/try_art.py", "MODEL")],
    ),
    Client(
        name="axolotl",
        alone=[
            *("axolotl==0.19.0", "axolotl-contribs-lgpl==0.0.7", "axolotl-contribs-mit==0.0.6", "art==6.5"),
            *("bitsandbytes==0.50.2", "peft==0.20.0", "trl==1.9.0"),
        ],
        imports=[
            *("accelerate", "addict", "colorama", "einops", "evaluate", "fastcore", "fire", "immutabledict", "kernels"),
            *("langdetect", "numba", "posthog", "python-dotenv", "schedulefree", "wandb"),
        ],
        commands=[
            ("axolotl", "train", "axolotl_sft.yaml", "--launcher", "python"),
            ("axolotl", "train", "axolotl_rl.yaml", "--launcher", "python"),
        ],
    ),
    Client(
        name="trinity",
        # vLLM is imported for the types of chat messages, and computes nothing.
        alone=["trinity-rft==0.6.0", "vllm==0.19.1"],
        imports=[
            *(
                "aiosqlite",
                "blake3",
                "cachetools",
                "cbor2",
                "cloudpickle",
                "diskcache",
                "fire",
                "flask",
                "gguf",
                "jsonlines",
            ),
            *("lark", "latex2sympy2_extended", "math_verify", "matplotlib", "mistral_common", "msgspec", "networkx"),
            *(
                "omegaconf",
                "openai==2.14.0",
                "openai-harmony",
                "partial-json-parser",
                "prometheus-fastapi-instrumentator",
            ),
            *("py-cpuinfo", "pybase64", "pyzmq", "ray[default]", "setproctitle", "sortedcontainers", "tensorboard"),
            *("tensordict", "wandb", "watchfiles", "word2number"),
        ],
        commands=[("python", "WORK/try_trinity.py", "WORK/trinity.yaml")],
    ),
)
