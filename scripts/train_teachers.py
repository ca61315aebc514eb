"""Train the embedded adapters, from which smaller runs learn: `python -m scripts.train_teachers FOLDER`.

Each is a supervised run of the embedded model in its plain chat format, in fp32, kept as a PEFT folder in fp16: one
answers the bundled arithmetic, the other the bundled conversations. The figures printed are of the weights before they
are rounded.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cookhouse
from cookhouse.assets import TINY_MODEL, data_file

RANK = 4
CONFIG = "adapter_config.json"
TENSORS = "adapter_model.safetensors"
COMMON: Mapping[str, Any] = {
    "model_name": TINY_MODEL,
    "renderer_name": "human_ai",
    "lora_rank": RANK,
    "train_unembed": False,
    "learning_rate": 5e-3,
    "batch_size": 32,
    "num_eval": 200,
    "seed": 0,
}


def arithmetic(split: str, folder: Path) -> str:
    """The bundled problems as conversations, in a file."""
    problems = [json.loads(line) for line in data_file(f"arithmetic/{split}.jsonl").read_text().splitlines()]
    rows = [{"prompt": each["question"], "completion": each["answer"], "skill": each["skill"]} for each in problems]
    path = folder / f"{split}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def train(settings: Mapping[str, Any], output: Path, work: Path) -> dict[str, float]:
    """A run, and its adapter as a PEFT folder; what it measured on held-out problems."""
    from cookhouse.engine.export import export_peft
    from cookhouse.service.local import service_folder, stored_files

    run = work / "run"
    result = cookhouse.run("supervised", {**COMMON, **settings, "log_path": str(run)})
    assert result.summary.state_path is not None
    files = stored_files(service_folder(run), result.summary.state_path)
    assert files is not None
    export_peft(files, work / "exported")
    shrink(work / "exported", output)
    return {name: value for name, value in result.metrics.items() if name.startswith("test/exact_match")}


def shrink(exported: Path, output: Path) -> None:
    """The two files that are needed, the weights in fp16."""
    import torch
    from safetensors.torch import load_file, save_file

    output.mkdir(parents=True, exist_ok=True)
    config = json.loads((exported / CONFIG).read_text())
    (output / CONFIG).write_text(json.dumps(config, indent=1) + "\n")
    tensors = {name: tensor.to(torch.float16) for name, tensor in load_file(exported / TENSORS).items()}
    save_file(tensors, output / TENSORS, metadata={"format": "pt"})


def main() -> None:
    """Train both, and print what they answer right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    os.environ["COOKHOUSE_PRECISION"] = "float32"
    for name in ("arithmetic", "chat"):
        with tempfile.TemporaryDirectory() as temporary:
            work = Path(temporary)
            settings: dict[str, Any] = {"num_epochs": 1}
            if name == "arithmetic":
                paths = {"dataset_path": arithmetic("train", work), "test_path": arithmetic("test", work)}
                settings = {"num_epochs": 4, **paths}
            print(name, json.dumps(train(settings, folder / name, work)))


if __name__ == "__main__":
    main()
