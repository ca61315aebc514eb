"""Documents are read as they say, and refused where they say two things. Catches the last of two values taken in
silence, `yes` as 1, `010` as 8, and a file that Windows' editors saved.
"""

from pathlib import Path
from typing import Any

import pytest

from cookhouse.errors import InputError
from cookhouse.recipes import find_recipe, read_config_file, settle
from cookhouse.settings.documents import read_document, read_json


def _file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.yaml", "x: 1\ny: 2\nx: 3\n", "x stands twice, in line 1 and in line 3"),
        ("a.yaml", "grid:\n  - {x: 1, y: 2}\n  - {x: 1,\n     x: 2}\n", "x stands twice, in line 3 and in line 4"),
        ("a.json", '{"x": 1,\n "y": {"x": 2},\n "x": 3}', "x stands twice, in line 1 and in line 3"),
        ("a.json", '{"y": [{"x": "{",\n "x": 3}]}', "x stands twice, in line 1 and in line 2"),
        ("a.toml", "x = 1\nx = 2\n", "line 2"),
    ],
)
def test_a_name_that_stands_twice_is_refused_with_its_lines(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_document(_file(tmp_path, name, text))


def test_what_a_merge_brings_in_may_be_overridden(tmp_path: Path) -> None:
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\nc: *a\n"
    assert read_document(_file(tmp_path, "a.yaml", text))["b"] == {"x": 3, "y": 2}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("010", "010"),
        ("1:30", "1:30"),
        ("2026-01-02", "2026-01-02"),
        ("-12", -12),
        ("0x1F", 31),
        ("1.5e-3", 1.5e-3),
        (".5", 0.5),
        ("1.0e4", 1e4),
        ("true", True),
        ("~", None),
        ("", None),
    ],
)
def test_a_plain_word_of_yaml_is_what_it_says(tmp_path: Path, text: str, value: Any) -> None:
    read = read_document(_file(tmp_path, "a.yaml", f"x: {text}\n"))["x"]
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(("name", "text"), [("a.json", '{"x": 3}'), ("a.toml", "x = 3\r\n"), ("a.yaml", "x: 3\r\n")])
def test_a_byte_order_mark_is_no_part_of_a_document(tmp_path: Path, name: str, text: str) -> None:
    assert read_document(_file(tmp_path, name, "\ufeff" + text)) == {"x": 3}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "seed: 1\nmax_steps: yes\n"),
        ("a.json", '{"seed": 1,\n"max_steps": true}'),
        ("a.toml", "seed = 1\nmax_steps = true\n"),
        ("a.yaml", "seed: 1\nlearning_rate: on\n"),
        ("a.yaml", "seed: 1\nmax_steps: 1:30\n"),
    ],
)
def test_a_setting_refuses_what_is_no_number_with_the_line(tmp_path: Path, name: str, text: str) -> None:
    given = read_config_file(_file(tmp_path, name, text))
    with pytest.raises(InputError, match=rf"{name}:2: (max_steps|learning_rate)=.* does not fit; .* takes"):
        settle(find_recipe("supervised"), {"file": given})


def test_a_setting_that_no_recipe_has_is_told_with_the_line(tmp_path: Path) -> None:
    given = read_config_file(_file(tmp_path, "a.yaml", "seed: 1\nbath_size: 2\n"))
    with pytest.raises(InputError, match=r"a\.yaml:2: unknown setting of recipe supervised 'bath_size'; did you mean"):
        settle(find_recipe("supervised"), {"file": given})


def test_a_zero_in_front_is_read_as_on_a_command_line(tmp_path: Path) -> None:
    given = read_config_file(_file(tmp_path, "a.yaml", "seed: 010\nview: yes\n"))
    config = settle(find_recipe("supervised"), {"file": given}).config
    assert (config.seed, config.view) == (10, True)


def test_json_on_a_command_line_has_each_name_once() -> None:
    assert read_json('{"x": [1, {"y": 2}], "z": "\\"x\\":"}') == {"x": [1, {"y": 2}], "z": '"x":'}
    with pytest.raises(ValueError, match="x stands twice"):
        read_json('{"x": 1, "x": 2}')
