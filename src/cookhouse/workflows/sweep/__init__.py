"""The workflow of a sweep: one recipe with several settings, and the runs compared."""

from cookhouse.workflows.sweep.state import SweepState
from cookhouse.workflows.sweep.workflow import sweep_workflow

__all__ = ["SweepState", "sweep_workflow"]
