"""Signatures in the pages of the reference, so that these are whole where they are read as they are.

Behind `<!-- signatures: MODULE NAME ... -->` a page has a block with what the code says of these names, all public ones
of the module where none is named. Sphinx has its own form of the same in its place.

python -m scripts.docs.signatures           # writes the blocks of all pages anew
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import chz
from pydantic import BaseModel

PAGES = Path(__file__).parents[2] / "docs" / "reference"
_SPECIAL = ("__init__", "__call__")
_DECORATORS = ("abstractmethod", "classmethod", "dataclass", "property", "staticmethod")
"""Decorators that are shown: they change how a name is used."""
_BLOCK = re.compile(
    r"^(?P<mark><!-- signatures: (?P<module>[\w.]+)(?P<names>(?:\s+\w+)*) -->)\n```python\n.*?^```$",
    re.MULTILINE | re.DOTALL,
)


def main() -> None:
    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        page.write_text(with_signatures(text), encoding="utf-8")


def with_signatures(text: str) -> str:
    """A page with its blocks as the code has them now."""
    return _BLOCK.sub(lambda found: f"{found['mark']}\n```python\n{_signatures(*_told(found))}\n```", text)


def with_directives(text: str) -> str:
    """A page with Sphinx's directives in place of its blocks."""
    return _BLOCK.sub(lambda found: f"```{{eval-rst}}\n{_directives(*_told(found))}\n```", text)


def named(text: str, module: str) -> list[str]:
    """Names of a module that a page has in its blocks."""
    told = [_told(found) for found in _BLOCK.finditer(text)]
    return [name for of, names in told if of == module for name in names]


def _told(found: re.Match[str]) -> tuple[str, Sequence[str]]:
    return found["module"], found["names"].split()


def _signatures(module: str, names: Sequence[str]) -> str:
    place: Any = import_module(module)
    stubs = [stub(getattr(place, name), name) for name in names or place.__all__]
    return "\n\n\n".join(stubs)


def _directives(module: str, names: Sequence[str]) -> str:
    if not names:
        return f".. automodule:: {module}\n   :members:"
    place = import_module(module)
    lines = [_directive(getattr(place, name), name) for name in names]
    return "\n".join([f".. currentmodule:: {module}", *lines])


def _directive(thing: Any, name: str) -> str:
    if not inspect.isclass(thing):
        kind = "autofunction" if inspect.isfunction(thing) else "autodata"
        return f".. {kind}:: {name}" + ("" if kind == "autofunction" else "\n   :no-value:")
    line = f".. {'autoexception' if issubclass(thing, Exception) else 'autoclass'}:: {name}"
    if _has_own_page(thing):
        return line
    return line + "\n   :members:" + ("\n   :special-members: __call__" if "__call__" in vars(thing) else "")


def _has_own_page(thing: type) -> bool:
    """True for settings, whose fields stand in a table."""
    return chz.is_chz(thing) or issubclass(thing, BaseModel)


def stub(thing: Any, name: str) -> str:
    """Source of a function, class or constant: signatures, public fields and docstrings, and no code."""
    if not inspect.isclass(thing) and not inspect.isfunction(thing):
        return _Source(_module_of_constant(thing, name)).constant(name)
    with_members = not (inspect.isclass(thing) and _has_own_page(thing))
    source = _Source(import_module(thing.__module__))
    return source.definition(inspect.unwrap(thing).__name__, with_members=with_members)


def _module_of_constant(thing: Any, name: str) -> ModuleType:
    """The module of this package that assigns it."""
    loaded = [module for loaded, module in [*sys.modules.items()] if loaded.startswith("cookhouse.")]
    having = [module for module in loaded if vars(module).get(name) is thing]
    return next(module for module in having if name in _Source(module).constants)


class _Source:
    """Text of a module, and where its definitions are in it."""

    def __init__(self, module: ModuleType) -> None:
        self._lines, self._body = _parsed(module)

    @property
    def constants(self) -> dict[str, ast.stmt]:
        """Assignments, by name."""
        found = [node for node in self._body if isinstance(node, ast.Assign | ast.AnnAssign)]
        targets = [node.targets[0] if isinstance(node, ast.Assign) else node.target for node in found]
        return {ast.unparse(target): node for target, node in zip(targets, found, strict=True)}

    def constant(self, name: str) -> str:
        node = self.constants[name]
        index = self._body.index(node)
        return "\n".join(self._text(each) for each in (node, *_docstrings(self._body[index + 1 : index + 2])))

    def definition(self, name: str, *, with_members: bool) -> str:
        node = next(node for node in self._body if getattr(node, "name", None) == name)
        if isinstance(node, ast.ClassDef):
            return "\n".join(self._class(node, with_members=with_members))
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        return "\n".join(self._function(node))

    def _class(self, node: ast.ClassDef, *, with_members: bool) -> Iterator[str]:
        head, documented = self._head(node), [self._text(each) for each in _docstrings(node.body[:1])]
        members = [*self._members(node.body)] if with_members else []
        if not documented and not members:
            yield f"{head} ..."
            return
        yield head
        yield from documented
        yield from members if documented else members[1:]

    def _members(self, body: Sequence[ast.stmt]) -> Iterator[str]:
        """Public fields and methods, a blank line before the first field and before each method."""
        fields = 0
        for each, following in zip(body, [*body[1:], ast.Pass()], strict=True):
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and _is_public(each.name):
                yield from ("", *self._function(each))
            elif isinstance(each, ast.AnnAssign) and _is_public(ast.unparse(each.target)):
                yield from [""] if not fields else []
                yield from [self._text(each), *map(self._text, _docstrings([following]))]
                fields += 1

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
        documented = _docstrings(node.body[:1])
        yield self._head(node) + ("" if documented else " ...")
        yield from map(self._text, documented)

    def _head(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
        """Decorators, name, parameters and result, or bases; to the colon."""
        kept = [each for each in node.decorator_list if re.split(r"\W", ast.unparse(each))[0] in _DECORATORS]
        lines = [" " * node.col_offset + f"@{ast.unparse(each)}" for each in kept]
        body = node.body[0]
        if body.lineno == node.lineno:
            return "\n".join([*lines, self._lines[node.lineno - 1][: body.col_offset].rstrip()])
        end = min(each.lineno for each in (body, *getattr(body, "decorator_list", ())))
        return "\n".join([*lines, *(line for line in self._lines[node.lineno - 1 : end - 1] if line.strip())])

    def _text(self, node: ast.stmt) -> str:
        return "\n".join(self._lines[node.lineno - 1 : node.end_lineno])


def _docstrings(nodes: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Statements that are a string alone."""
    return [
        node for node in nodes if isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)
    ]


def _is_public(name: str) -> bool:
    """True for what a caller uses; the promises of a contract suite are for its own runner."""
    return name in _SPECIAL or not name.startswith(("_", "test_"))


@cache
def _parsed(module: ModuleType) -> tuple[list[str], list[ast.stmt]]:
    text = inspect.getsource(module)
    return text.splitlines(), ast.parse(text).body


if __name__ == "__main__":
    main()
