"""Adapters are widened on the host when they are saved: a GPU that is full has no room for a second copy in fp32."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from cookhouse.engine.contract import LoraSpec
from cookhouse.engine.files import external_folder, peft_folder
from cookhouse.engine.lora.lora import AdapterLayout, LoraSite

LAYOUT = AdapterLayout(
    (LoraSite(name="model.layers.0.self_attn.q_proj", part="attn", in_features=8, out_features=8),), LoraSpec(rank=2)
)


class _OnDevice(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes what is made on a GPU in fp32."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.device.type == "cuda" and out.dtype == torch.float32:
            self.seen.append(str(func))
        return out


@pytest.mark.parametrize(
    ("module", "write"), [(external_folder, external_folder.write_external), (peft_folder, peft_folder.write_peft)]
)
def test_nothing_is_widened_on_the_device(
    module: Any, write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a save that runs out of a GPU's memory."""
    saved: dict[str, torch.Tensor] = {}
    monkeypatch.setattr(module, "save_file", lambda tensors, *_, **__: saved.update(tensors))
    on_device = _OnDevice()
    with FakeTensorMode():
        params = torch.empty(LAYOUT.num_parameters, dtype=torch.bfloat16, device="cuda")
        with on_device:
            write(tmp_path, "base", LAYOUT, params)
    assert {(tensor.device.type, tensor.dtype) for tensor in saved.values()} == {("cpu", torch.float32)}
    assert not on_device.seen
