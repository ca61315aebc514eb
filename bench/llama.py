"""The other side of `bench.sampling --llama`: runs under a Python with `llama-cpp-python` and nothing of cookhouse.

Writes the weights of a Qwen3 folder as GGUF, then samples every prompt to its length, all sequences decoding together.

    PYTHON bench/llama.py FOLDER LOAD.json PRECISION THREADS DEVICE     prints seconds
"""

import ctypes
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import llama_cpp as llama
import numpy as np

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(folder: Path, target: Path, precision: str) -> None:
    """Matrices in bf16 or fp32, vectors in fp32."""
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(target, "qwen3")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base((config.get("rope_parameters") or config)["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")
    kind = gguf.GGMLQuantizationType.BF16 if precision == "bfloat16" else gguf.GGMLQuantizationType.F32
    for name, tensor in read_safetensors(folder / "model.safetensors"):
        stem = name.removesuffix(".weight")
        layer, dot, rest = stem.removeprefix("model.layers.").partition(".")
        ours = f"blk.{layer}.{_NAMES[rest]}.weight" if layer.isdigit() and dot else f"{_NAMES[stem]}.weight"
        if tensor.ndim == 1:
            writer.add_tensor(ours, tensor)
        else:
            writer.add_tensor(ours, gguf.quants.quantize(tensor, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_safetensors(path: Path) -> Iterator[tuple[str, Any]]:
    """Each tensor with its name, in fp32."""
    data = np.memmap(path, np.uint8, "r")
    size = int(data[:8].view(np.uint64)[0])
    for name, entry in json.loads(bytes(data[8 : 8 + size])).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            raw = np.array(data[8 + size + first : 8 + size + last])
            is_half = entry["dtype"] == "BF16"
            values = (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32) if is_half else raw.view(np.float32)
            yield name, values.reshape(entry["shape"])


def run(
    context: Any, memory: Any, sampler: Any, prompts: list[list[int]], num_new: list[int], batch_tokens: int
) -> float:
    """Seconds. Sequences that decode go first in a batch; prompts fill what is left, whole."""
    start = time.perf_counter()
    llama.llama_memory_clear(memory, False)
    batch = llama.llama_batch_init(batch_tokens, 0, 1)
    waiting = list(range(len(prompts)))
    running: dict[int, tuple[int, int, int]] = {}
    while waiting or running:
        rows = [(token, position, i, True) for i, (token, position, _) in running.items()]
        while waiting and len(rows) + len(prompts[waiting[0]]) <= batch_tokens:
            i = waiting.pop(0)
            last = len(prompts[i]) - 1
            rows += [(token, position, i, position == last) for position, token in enumerate(prompts[i])]
            running[i] = (0, last, num_new[i])
        batch.n_tokens = len(rows)
        for row, (token, position, i, is_wanted) in enumerate(rows):
            batch.token[row], batch.pos[row], batch.logits[row] = token, position, is_wanted
            batch.n_seq_id[row], batch.seq_id[row][0] = 1, i
        if llama.llama_decode(context, batch):
            raise RuntimeError("llama_decode failed")
        for row, (_, position, i, is_wanted) in enumerate(rows):
            if is_wanted:
                token, left = llama.llama_sampler_sample(sampler, context, row), running[i][2] - 1
                running[i] = (token, position + 1, left)
                if not left:
                    del running[i]
                    llama.llama_memory_seq_rm(memory, i, -1, -1)
    llama.llama_batch_free(batch)
    return time.perf_counter() - start


def main() -> None:
    folder, load, precision, threads, device = (
        Path(sys.argv[1]),
        json.loads(Path(sys.argv[2]).read_text()),
        sys.argv[3],
        int(sys.argv[4]),
        sys.argv[5],
    )
    if device == "cuda" and not llama.llama_supports_gpu_offload():
        sys.exit("it was built without CUDA")
    target = Path(sys.argv[2]).with_suffix(".gguf")
    write_gguf(folder, target, precision)
    silent = llama.llama_log_callback(lambda *_: None)
    llama.llama_log_set(silent, ctypes.c_void_p(0))
    llama.llama_backend_init()
    sizes = llama.llama_model_default_params()
    sizes.n_gpu_layers = 0 if device == "cpu" else 10_000
    model = llama.llama_model_load_from_file(str(target).encode(), sizes)
    params = llama.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = 2**15, 2048, 512, len(load["prompts"])
    params.n_threads = params.n_threads_batch = threads
    params.kv_unified, params.flash_attn_type = False, int(device == "cuda")  # the fastest of four on a CPU
    context = llama.llama_init_from_model(model, params)
    sampler = llama.llama_sampler_chain_init(llama.llama_sampler_chain_default_params())
    llama.llama_sampler_chain_add(sampler, llama.llama_sampler_init_dist(0))
    memory = llama.llama_get_memory(context)
    run(context, memory, sampler, load["prompts"][:8], [8] * 8, 2048)
    print(run(context, memory, sampler, load["prompts"], load["num_new"], 2048))


if __name__ == "__main__":
    main()
