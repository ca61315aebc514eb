"""Sampling steps of an engine in a test that expects no failure."""

from cookhouse.engine.contract import SampleOutput
from cookhouse.engine.engine import Engine


def advance(engine: Engine) -> list[SampleOutput]:
    """What one step finishes, or tells of streamed requests."""
    outputs = []
    for output in engine.step_samples():
        assert isinstance(output, SampleOutput), output.error
        outputs.append(output)
    return outputs
