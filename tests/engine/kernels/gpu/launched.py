"""Triton's kernels of the package: what is started, as against what is only called within a kernel."""

import ast
from collections.abc import Iterator
from pathlib import Path

import cookhouse


def kernel_names() -> list[str]:
    """Those that no other kernel calls, of every module, without importing any."""
    names, called = [], set()
    for path in Path(cookhouse.__file__).parent.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if "triton" not in source:
            continue
        for function in _compiled(ast.parse(source)):
            names.append(function.name)
            called |= {
                node.func.id
                for node in ast.walk(function)
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            }
    return sorted(name for name in names if name not in called)


def _compiled(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            decorators = {
                part.attr for d in node.decorator_list for part in ast.walk(d) if isinstance(part, ast.Attribute)
            }
            if "jit" in decorators:
                yield node
