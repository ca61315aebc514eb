"""Pretrain the embedded model on the small world's plain text: `python -m scripts.pretrain_tiny FOLDER`.

FOLDER holds the tokenizer and receives the model; `--start OTHER` goes on from the weights of another folder. Runs on a
CPU; bf16 matrix products, weights and optimizer in fp32.
Shapes: B rows of a batch, T positions of a row.
"""

import argparse
import copy
import itertools
import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from scripts.tiny_world import END_OF_TEXT, SKILLS, documents
from tokenizers import Tokenizer
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

_DOCUMENTS_PER_CALL = 2000
_CHECKPOINT_SECONDS = 180.0
# The fused attention of torch's CPU build has a slow backward pass in bf16; compiled plain attention is faster.
_ATTENTION = "eager"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is trained on how much; the card of the bundled model says what made it."""

    seed: int = 0
    steps: int = 2400
    rows: int = 16
    length: int = 256  # tokens of one row; documents are packed into rows without padding
    fact_share: float = SKILLS["fact"].share  # of problems in the text, relative to the shares of other skills
    learning_rate: float = 4e-3
    warmup_steps: int = 100
    weight_decay: float = 0.1
    clip_norm: float = 1.0


def new_model(tokenizer: Tokenizer) -> Any:
    """A Qwen3 model of about three million parameters with random weights."""
    config = Qwen3Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=192,
        intermediate_size=576,
        num_hidden_layers=6,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=32,
        max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        use_cache=True,
        bos_token_id=None,
        eos_token_id=tokenizer.token_to_id("<|im_end|>"),
        pad_token_id=tokenizer.token_to_id(END_OF_TEXT),
    )
    return Qwen3ForCausalLM._from_config(config, attn_implementation=_ATTENTION)


def started_model(folder: Path) -> Any:
    """The model of a folder, its weights in fp32."""
    return Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=_ATTENTION)


def batches(tokenizer: Tokenizer, plan: Plan) -> Iterator[torch.Tensor]:
    """Endless batches of token ids, [rows, length]: documents end to end, each followed by the end-of-text token."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    assert end is not None
    size = plan.rows * plan.length
    texts = documents(plan.seed, fact_share=plan.fact_share)
    tokens: list[int] = []
    while True:
        for encoding in tokenizer.encode_batch(list(itertools.islice(texts, _DOCUMENTS_PER_CALL))):
            tokens += [*encoding.ids, end]
        whole = len(tokens) // size * size
        yield from torch.tensor(tokens[:whole]).view(-1, plan.rows, plan.length)
        tokens = tokens[whole:]


def rate(step: int, plan: Plan) -> float:
    """Linear warmup, then cosine to zero."""
    if step < plan.warmup_steps:
        return plan.learning_rate * (step + 1) / plan.warmup_steps
    done = (step - plan.warmup_steps) / max(1, plan.steps - plan.warmup_steps)
    return plan.learning_rate * 0.5 * (1.0 + math.cos(math.pi * done))


def new_optimizers(model: Any, plan: Plan) -> list[torch.optim.Optimizer]:
    """Muon (Jordan et al. 2024) for the matrices inside the layers, AdamW for the embedding and the norms."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed_tokens" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed_tokens" in name]
    return [
        torch.optim.Muon(matrices, weight_decay=plan.weight_decay, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
    ]


def step_loss(model: Any, tokens_BT: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy in nats over all positions but the last of each row."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits_BTV = model(input_ids=tokens_BT, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits_BTV[:, :-1].flatten(0, 1).float(), tokens_BT[:, 1:].flatten())


def save(model: Any, folder: Path) -> None:
    """Write weights in bf16 and the configurations."""
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder)
    # After the model, which writes one of its own. The padding ends documents: a sample must not go on into another.
    GenerationConfig(
        eos_token_id=[model.config.eos_token_id, model.config.pad_token_id], pad_token_id=model.config.pad_token_id
    ).save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)  # written for the owner alone, and it goes into a package


def train(model: Any, tokenizer: Tokenizer, plan: Plan, folder: Path) -> dict[str, float]:
    """Train, save as it goes, and return tokens seen, seconds, and the loss over the last hundred steps."""
    optimizers = new_optimizers(model, plan)
    compiled_loss = torch.compile(step_loss)
    losses: list[float] = []
    started = saved = time.monotonic()
    for step, tokens_BT in enumerate(itertools.islice(batches(tokenizer, plan), plan.steps)):
        for group in itertools.chain.from_iterable(optimizer.param_groups for optimizer in optimizers):
            group["lr"] = rate(step, plan)
        loss = compiled_loss(model, tokens_BT)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), plan.clip_norm)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds = time.monotonic() - started
        if (step + 1) % 50 == 0:
            recent = sum(losses[-50:]) / 50
            speed = (step + 1) * plan.rows * plan.length / seconds
            print(
                f"step {step + 1}/{plan.steps}  loss {recent:.4f}  {speed:,.0f} tokens/s  {seconds:.0f} s", flush=True
            )
        if time.monotonic() - saved > _CHECKPOINT_SECONDS:
            save(model, folder)
            saved = time.monotonic()
    save(model, folder)
    last = losses[-100:]
    return {
        "tokens": float(plan.steps * plan.rows * plan.length),
        "seconds": time.monotonic() - started,
        "loss": sum(last) / len(last),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--start", type=Path, help="folder of the weights to start from; default: random ones")
    for name, value in asdict(Plan()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    options = vars(parser.parse_args())
    folder, start = options.pop("folder"), options.pop("start")
    plan = Plan(**options)
    torch.manual_seed(plan.seed)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = new_model(tokenizer) if start is None else started_model(start)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters; {plan}", flush=True)
    print(json.dumps(train(model, tokenizer, plan, folder)))


if __name__ == "__main__":
    main()
