import importlib.util
from pathlib import Path

import pytest
from tests.server.hosting import KEY, Host

SCRIPT = Path(__file__).parents[2] / "examples" / "plain_tinker.py"


def test_a_plain_script_trains_and_samples(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Would catch anything that a script needs beyond `import tinker`, an address and a key."""
    monkeypatch.setenv("TINKER_BASE_URL", host.url)
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    spec = importlib.util.spec_from_file_location("plain_tinker", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
    lines = capsys.readouterr().out.splitlines()
    losses = [float(line.split()[-1]) for line in lines if line.startswith("step")]
    assert losses[-1] < losses[0]
    if next(iter(host.service.requests.base_models)).architecture != "fake":  # a bias per token cannot learn to count
        said, expected = (line.split("says")[1].strip() for line in lines[-2:])
        assert said == expected
