"""Sandboxes for programs that nobody trusts."""

from cookhouse.grading.sandbox.isolation import Isolation, IsolationMethod
from cookhouse.grading.sandbox.local import LocalSandbox, default_sandbox
from cookhouse.grading.sandbox.modal import ModalSandbox
from cookhouse.grading.sandbox.sandbox import (
    Execution,
    ExecutionOutcome,
    Limits,
    PairingSandbox,
    Program,
    Sandbox,
    standalone_source,
)
from cookhouse.grading.sandbox.sandbox_fusion import SandboxFusion

__all__ = [
    "Execution",
    "ExecutionOutcome",
    "Isolation",
    "IsolationMethod",
    "Limits",
    "LocalSandbox",
    "ModalSandbox",
    "PairingSandbox",
    "Program",
    "Sandbox",
    "SandboxFusion",
    "default_sandbox",
    "standalone_source",
]
