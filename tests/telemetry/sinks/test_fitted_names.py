"""Names of metrics reach each tool, one to one. Catches a name that ends a sink, and two that become one curve."""

import re
from collections.abc import Callable

import pytest

from cookhouse.telemetry.sinks.fitted_names import mlflow_name, opentelemetry_name, wandb_name

_PATHS = ("acc@1", "acc#1", "acc_1", "trail/", "trail", "a//b", "a/b", "", "_", "/lead", ".", "..", "../a", "a/../b")
NAMES = (*_PATHS, "x" * 250, "x" * 300, "x" * 301, "_step", "Ångström", "nan\n", "9", "a:b", "loss", "\ud800")


@pytest.mark.parametrize(
    ("name_of", "takes"),
    [
        (mlflow_name, r"(?!\.)[\w\-. :]+(/(?!\.)[\w\-. :]+)*"),
        (opentelemetry_name, r"[a-zA-Z][a-zA-Z0-9_./-]{0,254}"),
        (wandb_name, r"(?s)[^_].*"),
    ],
)
def test_each_name_is_one_that_the_tool_takes_and_no_other_s(name_of: Callable[[str], str], takes: str) -> None:
    found = [name_of(name) for name in NAMES]
    assert len(set(found)) == len(NAMES)
    assert [name for name in found if not re.fullmatch(takes, name)] == []
    assert name_of("test/gsm8k-acc.x") == "test/gsm8k-acc.x"
