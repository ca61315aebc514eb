"""Part of stage `families`: which architectures decode in CUDA graphs, and which do not run at all."""

import argparse
import tempfile
import traceback
from pathlib import Path

import numpy as np
from scripts.gpu_check.figures import show


def decodes_in_graphs(folder: str, device: str) -> bool:
    """Whether steps of eight rows are captured."""
    from cookhouse.engine import TorchEngine
    from cookhouse.engine.contract import SampleOutput, SampleRequest

    engine = TorchEngine(base_models=[folder], device=device, precision="bfloat16")
    request = SampleRequest(
        request_id="r",
        base_model=folder,
        snapshot_id=None,
        prompt_T=np.arange(1, 20),
        seed=0,
        num_samples=8,
        max_tokens=16,
        stop=[],
    )
    engine.submit_sample(request)
    while engine.has_samples():
        for output in engine.step_samples():
            assert isinstance(output, SampleOutput), output
    graphs = engine._samplers[folder]._runner._graphs
    return graphs is not None and bool(graphs._graphs)


def main() -> None:
    """Print the architectures by what they do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    device = parser.parse_args().device
    from tests.engine.families import COMPOSITES, FAMILIES, save_family

    found: dict[str, list[str]] = {"in_graphs": [], "without_graphs": [], "broken": []}
    for name in (*FAMILIES, *COMPOSITES):
        with tempfile.TemporaryDirectory() as folder:
            try:
                is_captured = decodes_in_graphs(save_family(Path(folder), name), device)
                found["in_graphs" if is_captured else "without_graphs"].append(name)
            # One that does not run is a result, with its stack in the log.
            except Exception:
                traceback.print_exc()
                found["broken"].append(name)
        show({f"families_{kind}": ", ".join(names) or "none" for kind, names in found.items()})
    assert not found["broken"], found["broken"]


if __name__ == "__main__":
    main()
