"""Provider of `--model cookhouse/WEIGHTS`, which Inspect AI loads."""

from inspect_ai.model import ModelAPI, modelapi


@modelapi(name="cookhouse")
def cookhouse() -> type[ModelAPI]:
    """Weights by any name: a run, a checkpoint, a registered model or a base model."""
    from cookhouse.harnesses.inspect_model import CookhouseModel

    return CookhouseModel
