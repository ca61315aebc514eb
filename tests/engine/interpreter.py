"""Mends Triton's interpreter, which runs kernels on the CPU: what it cannot do, and its compiler can."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np


def mend() -> None:
    """Let loops be bounded by a tensor, which Triton 3.6 refuses with NumPy 2.4, and products take bf16.

    Changes what is imported of Triton, for the rest of the process.
    """
    interpreter: Any = import_module("triton.runtime.interpreter")
    interpreter._patch_lang_tensor = _with_index(interpreter._patch_lang_tensor)
    builder = interpreter.InterpreterBuilder
    builder.create_dot = _with_bf16(builder.create_dot, interpreter.TensorHandle)


def _with_index(patch: Callable[..., None]) -> Callable[..., None]:
    def patch_tensor(tensor: Any, *scope: Any) -> None:
        patch(tensor, *scope)
        # The interpreter holds a number as an array of one, which NumPy turns into an integer only without dimensions.
        tensor.__index__ = lambda number: int(number.handle.data.item())

    return patch_tensor


def _with_bf16(dot: Callable[..., Any], handle_type: type[Any]) -> Callable[..., Any]:
    """The interpreter holds numbers of bf16 as integers of 16 bits, and multiplies these."""
    language = import_module("triton.language")

    def widened(handle: Any) -> Any:
        if handle.dtype != language.bfloat16:
            return handle
        return handle_type((handle.data.astype(np.uint32) << 16).view(np.float32), language.float32)

    def create_dot(builder: Any, a: Any, b: Any, *rest: Any) -> Any:
        return dot(builder, widened(a), widened(b), *rest)

    return create_dot
