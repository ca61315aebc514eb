"""YAML, TOML and JSON that people write: a name that stands twice is refused, with the line.

YAML's numbers and texts are those of version 1.2: `010` and `1:30` are texts, which a setting reads as if they were
typed. A file may begin with a byte order mark.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cookhouse.errors import InputError

MAX_FILE_BYTES = 1 << 20


class Document(dict[str, Any]):
    """The values of a file by name, and where they stand."""

    def __init__(self, values: Mapping[str, Any], path: Path, lines: Mapping[str, int]) -> None:
        super().__init__(values)
        self.path = path
        self.lines = lines
        """By name, from 1; of those whose line is known."""

    def place(self, name: str) -> str:
        """Place of a value, as `run.yaml:3`."""
        return f"{self.path}:{self.lines[name]}" if name in self.lines else str(self.path)


def read_document(path: Path) -> Any:
    """Read a YAML, TOML or JSON file, by its ending; a mapping of texts is a `Document`.

    Raises:
        InputError: it cannot be read, or a name stands twice; the line is named.
    """
    readers: Mapping[str, Callable[[str], tuple[Any, Mapping[str, int]]]] = {
        ".json": _json,
        ".toml": lambda text: (tomllib.loads(text), _toml_lines(text)),
        ".yaml": _yaml,
        ".yml": _yaml,
    }
    if path.suffix not in readers:
        raise InputError(f"{path} ends in {path.suffix or 'nothing'}; a config file ends in {', '.join(readers)}")
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB; that is no config")
        values, lines = readers[path.suffix](path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path}; name one that ends in {', '.join(readers)}") from error
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read as a config: {' '.join(str(error).split())}") from error
    if isinstance(values, dict) and all(isinstance(name, str) for name in values):
        return Document(values, path, lines)
    return values


def read_json(text: str) -> Any:
    """As `json.loads`. Raises `ValueError` also where an object has a name twice, and says in which line."""
    return _json(text)[0]


_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]', re.DOTALL)


def _json(text: str) -> tuple[Any, Mapping[str, int]]:
    """The value, and the lines of the names of the outermost object."""
    value = json.loads(text)
    objects: list[dict[str, int]] = []
    outermost: dict[str, int] = {}
    last, line, counted = "", 1, 0
    for token in _JSON_TOKEN.finditer(text):
        line, counted = line + text.count("\n", counted, token.start()), token.start()
        if token[0] in "{[":
            objects.append({} if objects else outermost)
        elif token[0] in "}]":
            objects.pop()
        elif token[0] == ":":
            _keep_line(objects[-1], json.loads(last), line)
        last = token[0]
    return value, outermost


def _toml_lines(text: str) -> Mapping[str, int]:
    """Of the names before the first table. `tomllib` refuses one that stands twice by itself."""
    names = (re.match(r"""\s*["']?([\w-]+)["']?\s*=""", line) for line in text.split("\n[", 1)[0].split("\n"))
    return {name[1]: number for number, name in enumerate(names, 1) if name is not None}


def _yaml(text: str) -> tuple[Any, Mapping[str, int]]:
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = _plain_resolvers(yaml.SafeLoader.yaml_implicit_resolvers)

    loader = Loader(text)
    try:
        root = loader.get_single_node()
        lines = {} if root is None else _check_names(root, set())
        return ({} if root is None else loader.construct_document(root)), lines
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    finally:
        loader.dispose()


_NUMBERS = {
    "tag:yaml.org,2002:int": re.compile(r"^[-+]?(?:0|[1-9][0-9_]*|0b[01_]+|0x[0-9a-fA-F_]+)$"),
    "tag:yaml.org,2002:float": re.compile(
        r"^(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
}
_DATE = "tag:yaml.org,2002:timestamp"


def _plain_resolvers(resolvers: Mapping[str, Any]) -> dict[str, Any]:
    """Values that a plain word may have: neither a date, nor a number to another base than it seems."""
    return {
        first: [(tag, _NUMBERS.get(tag, pattern)) for tag, pattern in some if tag != _DATE]
        for first, some in resolvers.items()
    }


def _check_names(node: Any, seen: set[int]) -> Mapping[str, int]:
    """The lines of the names of a mapping. Raises `ValueError` where one stands twice in it or below it."""
    lines: dict[str, int] = {}
    if id(node) in seen or isinstance(node.value, str):  # as an alias names it, or a scalar
        return lines
    seen.add(id(node))
    for part in node.value:
        for child in part if isinstance(part, tuple) else (part,):
            _check_names(child, seen)
        if isinstance(part, tuple) and isinstance(part[0].value, str):
            _keep_line(lines, part[0].value, part[0].start_mark.line + 1)
    return lines


def _keep_line(lines: dict[str, int], name: str, line: int) -> None:
    if name in lines:
        raise ValueError(f"{name} stands twice, in line {lines[name]} and in line {line}; give it once")
    lines[name] = line
