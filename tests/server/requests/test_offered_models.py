"""The line to type where a base model is not offered."""

import re
import shlex

import pytest

from cookhouse.errors import UnknownNameError
from cookhouse.models.names import parse_served
from cookhouse.server.requests.offered_models import OfferedModels

ASKED = "Qwen/Qwen3-8B"


def refusal(name: str, started_as: str = "") -> str:
    models = OfferedModels()
    models.fill([], {}, started_as)
    with pytest.raises(UnknownNameError) as caught:
        models.named(name)
    return str(caught.value)


@pytest.mark.parametrize("name", [ASKED, f"{ASKED}:peft:262144"])
def test_the_line_can_be_pasted(name: str) -> None:
    """Catches a line without the script, one whose spaces are lost, and a name that no server takes."""
    started_as = shlex.join(["--state-dir", "my state", "--", "python", "my script.py"])
    line = refusal(name, started_as).rpartition("offline: ")[2]
    words = shlex.split(line)
    served = f"{ASKED}=cookhouse/tiny"
    assert words == ["cookhouse", "serve", "-m", served, "--state-dir", "my state", "--", "python", "my script.py"]
    assert parse_served([words[3]]) == {ASKED: "cookhouse/tiny"}


def test_the_embedded_model_is_served_under_its_own_name() -> None:
    """Catches a line that ends in cookhouse/tiny=cookhouse/tiny."""
    assert refusal("cookhouse/tiny").endswith("cookhouse serve -m cookhouse/tiny")


@pytest.mark.parametrize("name", ["a; rm -rf ~", "$(reboot)", "../x", "a b", "", "x" * 201])
def test_a_name_that_none_can_have_is_in_no_line(name: str) -> None:
    """Catches what a stranger sends, put where somebody pastes it into a shell."""
    assert re.search(r"-m NAME, or -m NAME=FOLDER\)$", refusal(name))
