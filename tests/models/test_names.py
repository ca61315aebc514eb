"""Names of base models."""

from pathlib import Path

import pytest

from cookhouse.errors import InputError
from cookhouse.models.catalog import dims
from cookhouse.models.names import parse_served, plain_name


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("Qwen/Qwen3-8B:peft:262144", "Qwen/Qwen3-8B"),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("./a:peft:1/model", "./a:peft:1/model"),
        ("Qwen/Qwen3-8B:peft:", "Qwen/Qwen3-8B:peft:"),
        ("Qwen/Qwen3-8B:other:12", "Qwen/Qwen3-8B:other:12"),
    ],
)
def test_a_context_suffix_is_cut_and_nothing_else(name: str, plain: str) -> None:
    assert plain_name(name) == plain


def test_the_width_of_a_model_is_known_by_either_name() -> None:
    """Would catch a learning rate that cannot be found for a published name."""
    sizes = dims("Qwen/Qwen3-8B-Base:peft:131072")
    assert sizes is not None
    assert sizes == dims("Qwen/Qwen3-8B-Base")
    assert sizes.hidden_size == 4096


def test_models_to_serve_have_their_own_name_or_another() -> None:
    texts = ["cookhouse/tiny", "Qwen/Qwen3-8B=./a=b", "./local", "X:peft:9", "Y/Z:peft:9=./w", "cookhouse/tiny"]
    assert parse_served(texts) == {
        "cookhouse/tiny": "cookhouse/tiny",
        "Qwen/Qwen3-8B": "./a=b",
        "./local": "./local",
        "X": "X",
        "Y/Z:peft:9": "./w",
    }


def test_a_folder_with_an_equals_sign_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a folder named by a setting (lr=1) taken for a name and a folder."""
    (tmp_path / "lr=1").mkdir()
    monkeypatch.chdir(tmp_path)
    assert parse_served(["lr=1"]) == {"lr=1": "lr=1"}


@pytest.mark.parametrize("text", ["=./folder", "name=", "a/b/c=./folder", "../x=./folder", "two words=./folder"])
def test_names_that_nobody_could_ask_for_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="NAME=FOLDER"):
        parse_served([text])


def test_one_name_for_two_folders_is_refused() -> None:
    """Would catch the last of two models serving for both."""
    with pytest.raises(InputError, match=r"'m' is to be both './a' and './b'"):
        parse_served(["m=./a", "m=./b"])
