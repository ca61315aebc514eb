"""The other side of `bench.endpoint --llama`: runs under a Python with `llama-cpp-python[server]`, without cookhouse.

Writes a GGUF file anew in the precision of the comparison, and serves it.

    PYTHON bench/llama_server.py GGUF TARGET PRECISION PORT THREADS
"""

import os
import sys

import llama_cpp as llama


def main() -> None:
    source, target, precision, port, threads = sys.argv[1:]
    params = llama.llama_model_quantize_default_params()
    params.ftype = llama.LLAMA_FTYPE_MOSTLY_BF16 if precision == "bfloat16" else llama.LLAMA_FTYPE_ALL_F32
    params.allow_requantize = True
    if llama.llama_model_quantize(source.encode(), target.encode(), params):
        sys.exit(f"{source} cannot be written as {precision}")
    settings = ["--model", target, "--model_alias", "measured", "--port", port, "--n_threads", threads]
    settings += ["--n_threads_batch", threads, "--n_ctx", "2048", "--verbose", "false"]
    # By default a request ends the one before it, and prompts have logits after each of their tokens.
    settings += ["--interrupt_requests", "false", "--logits_all", "false"]
    os.execv(sys.executable, [sys.executable, "-m", "llama_cpp.server", *settings])


if __name__ == "__main__":
    main()
