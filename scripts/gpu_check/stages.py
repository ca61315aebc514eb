"""The stages, in their order: what is known after a few minutes comes first.

Models are random ones in the shapes of Qwen3. On a CPU the same stages are rehearsed with tiny ones.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from scripts.gpu_check.stage import Stage

_ENGINE = frozenset(("torch", "transformers", "cookhouse"))
_TESTS = _ENGINE | {"pytest", "triton"}
_WIRE = _ENGINE | {"tinker", "cookhouse.server.main"}
_PEERS = _WIRE | {"trl", "datasets", "peft"}
_TEST_SECONDS = 60
_REHEARSAL_FACTOR = 8
"""Limits on a CPU: kernels go through an interpreter there, on few cores."""
_PYTEST = (
    *("-m", "pytest", "-q", "-W", "default", "--tb", "short"),
    *("--continue-on-collection-errors", "-p", "no:cacheprovider"),
)
_KERNELS = "tests/engine/kernels"
_OF_A_GPU = (
    *(_KERNELS, "tests/engine/model/test_attention.py", "tests/engine/lora/test_grouped.py"),
    *("tests/engine/sampler/test_graph.py", "tests/engine/test_device.py"),
)

Command = Sequence[str]


@dataclass(frozen=True)
class _Sizes:
    """Models and loads: those of the table of bench/README.md, or tiny ones."""

    models: Mapping[str, str]
    precision: tuple[str, ...]
    steps: tuple[str, ...]
    load: tuple[str, ...]
    samples: tuple[str, ...]
    tenants: tuple[str, ...]
    group: tuple[str, ...]
    conversations: tuple[str, ...]
    vocabulary: tuple[str, ...]
    rl_steps: tuple[str, ...]


_REAL = _Sizes(
    models={name: f"random:qwen3-{name}" for name in ("0.6b", "1.7b", "4b", "8b")},
    precision=("--precision", "bfloat16"),
    steps=("--steps", "5"),
    load=("--static-batch", "64"),
    samples=(),
    tenants=(),
    group=("--rounds", "1", "--steps", "3"),
    conversations=("--join", "16", "--batch-size", "8", "--steps", "10"),
    vocabulary=(
        *("--model", "random:256x2x151936", "--batch-size", "8", "--join", "16", "--max-length", "512"),
        *("--steps", "3", "--warmup", "1"),
    ),
    rl_steps=("--steps", "200"),
)
_TINY = _Sizes(
    models=dict.fromkeys(_REAL.models, "random:64x2x4096"),
    precision=("--precision", "float32"),
    steps=("--tokens", "256", "--length", "64", "--steps", "1", "--warmup", "1"),
    load=("--prompts", "4", "--static-batch", "4", "--rows", "1", "4"),
    samples=("--prompts", "2", "--samples", "1", "--tokens", "8"),
    tenants=("--tenants", "2", "--rank", "2"),
    group=(
        *("--rounds", "1", "--steps", "1", "--warmup", "1", "--batch-size", "2", "--group-size", "2"),
        *("--max-tokens", "8"),
    ),
    conversations=("--batch-size", "2", "--max-length", "64", "--steps", "10", "--warmup", "1"),
    vocabulary=(
        *("--model", "random:64x2x4096", "--batch-size", "2", "--max-length", "64"),
        *("--steps", "10", "--warmup", "1"),
    ),
    rl_steps=("--steps", "3"),
)


def all_stages(device: str, num_test_processes: int) -> Sequence[Stage]:
    """Of one device, `cuda` or `cpu`. The first eight fit into a first call of nine minutes."""
    sizes = _REAL if device == "cuda" else _TINY
    on = ("--device", device)
    saved = (*on, "--save") if device == "cuda" else on
    timeout = ("-o", f"timeout={_TEST_SECONDS if device == 'cuda' else 300}")
    tests = (*_PYTEST, *timeout, *on, "-n", str(num_test_processes), "--dist", "worksteal")

    def bench(name: str, model: str, *arguments: str) -> Command:
        return ("-m", f"bench.{name}", *saved, "--model", sizes.models[model], *arguments)

    def ours(name: str, *arguments: str) -> Command:
        return ("-m", f"scripts.gpu_check.{name}", *on, *arguments)

    exactness = bench("exactness", "1.7b", "--precision", "bfloat16", *sizes.samples)
    sampling = (*sizes.precision, *sizes.load)
    supervised = (*sizes.precision, *sizes.conversations)
    described: list[tuple[str, str, float, frozenset[str], list[Command]]] = [
        ("device", "versions, driver, a copy and a product", 40, frozenset(), [ours("device")]),
        ("smoke", "a pass, a step and 64 samples", 60, _ENGINE, [ours("smoke", "--model", sizes.models["1.7b"])]),
        (
            *("kernels", "tests of kernels, attention, grouped products, graphs", 90, _TESTS),
            [(*tests, "-m", "gpu", *_OF_A_GPU), (*tests, "-m", "not gpu and not slow and not long", _KERNELS)],
        ),
        ("mfu", "utilization of training", 55, _ENGINE, [_profiled(bench, "1.7b", sizes)]),
        ("sampling", "decoding at 1 and 64 rows", 55, _ENGINE, [bench("sampling", "1.7b", *sampling, "--alone")]),
        ("exactness", "sampler against trainer", 55, _ENGINE, [exactness, _tried("wide_products", exactness)]),
        (
            *("families", "architectures, and which decode in graphs", 100, _TESTS),
            [
                ours("graphs"),
                (*tests, "-k", "packed_loss or cached_decoding or bf16", "tests/engine/test_families.py"),
            ],
        ),
        (
            *("memory", "memory that runs out, and eight tenants", 60, _ENGINE),
            [
                ours("shortage", "--model", sizes.models["1.7b"]),
                bench("tenants", "1.7b", *sizes.precision, *sizes.tenants, "--sequences", "1"),
            ],
        ),
        ("first-run", "the README's first command", 90, _WIRE, [("-m", "cookhouse", "run", "supervised")]),
        ("publish", "publishing sampler weights", 40, _WIRE, [("-m", "bench.publish", *saved)]),
        ("grpo", "GRPO steps against TRL's", 150, _PEERS, [bench("rl", "1.7b", *sizes.precision, *sizes.group)]),
        (
            *("rl-memory", "200 steps of RL, memory at each", 150, _ENGINE),
            [ours("rl_memory", "--model", sizes.models["0.6b"], *sizes.rl_steps)],
        ),
        ("trl", "training against TRL", 120, _PEERS, [bench("supervised", "1.7b", *supervised)]),
        (
            *("generate", "sampling against transformers", 120, _ENGINE),
            [bench("sampling", "1.7b", *sampling, "--rows", "--continuous")],
        ),
        (
            *("8b", "utilization and decoding at 8 B", 150, _ENGINE),
            [_profiled(bench, "8b", sizes), bench("sampling", "8b", *sampling, "--alone")],
        ),
        (
            *("trials", "ways to compute that no GPU has measured", 150, _ENGINE),
            [
                _tried("wide_products", _profiled(bench, "1.7b", sizes)),
                _tried("growing_cache", bench("sampling", "1.7b", *sampling, "--alone")),
            ],
        ),
        (
            *("rest-of-bench", "the other lines of the table", 300, _PEERS),
            [
                ("-m", "bench.supervised", *saved, *sizes.vocabulary),
                bench("tenants", "1.7b", *sizes.precision, *sizes.tenants),
                _profiled(bench, "4b", sizes),
                bench("supervised", "1.7b", *supervised, "--peer-precision", "float32"),
            ],
        ),
        (
            *("rest-of-tests", "the other tests that compute in an engine", 540, _TESTS),
            [(*tests, "-m", "not long and not gpu", "tests/engine", "tests/contract", "tests/e2e")],
        ),
    ]
    factor = 1 if device == "cuda" else _REHEARSAL_FACTOR
    return [
        Stage(number=number, name=name, about=about, seconds=factor * seconds, needs=needs, commands=commands)
        for number, (name, about, seconds, needs, commands) in enumerate(described, 1)
    ]


def _profiled(bench: Callable[..., Command], model: str, sizes: _Sizes) -> Command:
    return bench("mfu", model, *sizes.precision, *sizes.steps, "--profile")


def _tried(trials: str, command: Command) -> Command:
    """With ways to compute that are off by default, until one of the two is found to be better."""
    return (f"COOKHOUSE_GPU_TRIALS={trials}", *command)
