"""Training several adapters in one pass against one after another: tokens per second of each, and the ratio.

python -m bench.tenants
python -m bench.tenants --wire      each tenant a client of one server: what a tenant sees, waiting and all
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from bench.harness import MODEL_HELP, isolated, model_folder, now, parse_options, save_record, serving
from numpy.typing import NDArray

_ROUNDS = 7
_VOCAB = 2000


def run(
    model: str, device: str, precision: str, num_tenants: int, num_sequences: int, length: int, rank: int
) -> tuple[float, float]:
    """Best seconds of a forward-backward of every tenant: together, and one after another, in turn."""
    from cookhouse.engine import TorchEngine
    from cookhouse.engine.contract import ForwardBackward, LoraSpec, TrainingDatum

    engine = TorchEngine(base_models=[model], device=device, precision=precision)
    requests = []
    for tenant, pairs in enumerate(_sequences(num_tenants, num_sequences, length)):
        engine.create_model(str(tenant), model, LoraSpec(rank=rank, seed=tenant))
        data_D = [
            TrainingDatum(tokens_T=tokens, loss_fn_inputs={"target_tokens": targets}) for tokens, targets in pairs
        ]
        requests.append(ForwardBackward(model_id=str(tenant), data_D=data_D, loss_fn="cross_entropy"))
    together, apart = [], []
    for _ in range(_ROUNDS):
        start = now(device)
        engine.forward_backward(requests)
        middle = now(device)
        for request in requests:
            engine.forward_backward([request])
        together.append(middle - start)
        apart.append(now(device) - middle)
    return min(together), min(apart)


def run_wire(
    model: str, device: str, precision: str, num_tenants: int, num_sequences: int, length: int, rank: int
) -> tuple[float, float]:
    """As `run`, through the SDK: all tenants ask at once, or each when the one before it has been answered."""
    import tinker
    from tinker import types

    with serving(device, "--precision", precision, "--base-model", model) as server:
        clients, batches = [], []
        for tenant, pairs in enumerate(_sequences(num_tenants, num_sequences, length)):
            service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
            clients.append(service.create_lora_training_client(model, rank=rank, seed=tenant).result())
            batches.append(
                [
                    types.Datum(
                        model_input=types.ModelInput.from_ints(tokens.tolist()),
                        loss_fn_inputs={"target_tokens": types.TensorData.from_numpy(targets)},
                    )
                    for tokens, targets in pairs
                ]
            )
        together, apart = [], []
        for _ in range(_ROUNDS):
            start = now(device)
            for future in [c.forward_backward(b, "cross_entropy") for c, b in zip(clients, batches, strict=True)]:
                future.result()
            middle = now(device)
            for client, batch in zip(clients, batches, strict=True):
                client.forward_backward(batch, "cross_entropy").result()
            together.append(middle - start)
            apart.append(now(device) - middle)
    return min(together), min(apart)


def _sequences(
    num_tenants: int, num_sequences: int, length: int
) -> list[list[tuple[NDArray[np.int64], NDArray[np.int64]]]]:
    """Tokens and targets of each sequence of each tenant."""
    rng = np.random.default_rng(0)
    return [
        [(rng.integers(0, _VOCAB, length), rng.integers(0, _VOCAB, length)) for _ in range(num_sequences)]
        for _ in range(num_tenants)
    ]


def main() -> None:
    """Print the ratio at each batch size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cookhouse/tiny", help=MODEL_HELP)
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--tenants", type=int, default=8)
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 4, 16, 64], help="of each tenant")
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--wire", action="store_true", help="over the wire, each tenant a client")
    options = parse_options(parser)
    measure, kind = (run_wire, "tenants-wire") if options.wire else (run, "tenants")
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        model = model_folder(options.model, Path(folder) / "model", options.device)
        for count in options.sequences:
            sizes = (options.tenants, count, options.length, options.rank)
            together, apart = isolated(measure, model, options.device, options.precision, *sizes)
            tokens = options.tenants * count * options.length
            figures[f"ratio_at_{count}"] = apart / together
            print(
                f"{count:3} sequences each: together {tokens / together:8.0f} tokens/s, "
                f"one after another {tokens / apart:8.0f} tokens/s, ratio {apart / together:.2f}"
            )
    if options.save:
        save_record(f"{kind}-{options.model}-{options.precision}", vars(options), figures)


if __name__ == "__main__":
    main()
