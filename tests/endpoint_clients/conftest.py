"""Published clients at our server: each test is one call, named by its docstring and by the ids of its parameters.

`make test-endpoint-clients` runs them in other environments, which have no cookhouse: it says where a server is.
"""

import json
import os
from collections.abc import Generator, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

_LIBRARIES = {
    "test_anthropic.py": ("anthropic", "anthropic"),
    "test_instructor.py": ("instructor", "instructor"),
    "test_langchain.py": ("langchain-openai", "langchain_openai"),
    "test_litellm.py": ("litellm", "litellm"),
    "test_openai.py": ("openai", "openai"),
    "test_openai_agents.py": ("openai-agents", "agents"),
}
"""The distribution that each file tests, and its module."""
collect_ignore = [file for file, (_, module) in _LIBRARIES.items() if find_spec(module) is None]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Address, without `/v1`, and key."""
    if url := os.environ.get("OPENAI_BASE_URL"):
        yield url.removesuffix("/v1"), os.environ["OPENAI_API_KEY"]
        return
    from tests.contract.conftest import make_torch_engine
    from tests.server.hosting import KEY, hosted

    with hosted(tmp_path_factory.mktemp("state"), make_torch_engine) as host:
        yield host.url, KEY


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Write each call and what came of it to the file of the lane."""
    report: Any = yield
    path, (library, _) = os.environ.get("COOKHOUSE_CALLS"), _LIBRARIES.get(item.path.name, ("", ""))
    if path and library and report.when == "call":
        assert isinstance(item, pytest.Function)
        text = (item.function.__doc__ or item.name).split("\n")[0].rstrip(".")
        if callspec := getattr(item, "callspec", None):
            text += f": {callspec.id}"
        # An expected failure is one of the tiny model: its reason stands in the table.
        result = "served" if report.passed else getattr(report, "wasxfail", "fails").removeprefix("reason: ")
        row = [f"{library} {version(library)}", text, result]
        with Path(path).open("a") as file:
            file.write(json.dumps(row) + "\n")
    return report
