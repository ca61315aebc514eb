"""Open sets: whatever a user may bring is named in one way, by a built-in name, by an entry point of an installed
package, as `module:NAME`, or as `file.py:NAME`.
"""

import importlib
import importlib.util
import inspect
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeGuard, TypeVar

from cookhouse.errors import InputError, UnknownNameError, with_article
from cookhouse.extras import ENGINE_PACKAGES, require_engine

T = TypeVar("T")
M = TypeVar("M")


@dataclass(frozen=True, kw_only=True)
class OpenSet(Generic[T]):
    """Things of one kind by name. What a name stands for is imported when it is first asked for."""

    kind: str
    """In words, for messages: `recipe`."""
    group: str
    """Entry points of this group are members: `cookhouse.recipes`."""
    builtin: Mapping[str, str]
    """`module:NAME` by name."""
    check: Callable[[Any], T | None]
    """The thing itself if it is of this kind, else None."""
    wants: str
    """What a thing of this kind is, in words, for whoever named something else."""
    takes: tuple[str, ...] | None = None
    """What things of this kind are called with, in order; None: they are not, or what calls them sees to it."""
    function_of: Callable[[T], Any] = lambda thing: thing
    """What of a thing is called."""
    of_files: Mapping[str, str] = field(default_factory=dict)
    """`module:function` by the suffix of files that are one without any Python: it is called with the file's path."""
    likely: tuple[str, ...] = ()
    """Those that are named to whoever asks for one that there is not, where none is near; empty: the first of all."""
    way_out: str = ""
    """Sentence at the end of the error for a name that there is not."""
    other_spelling: Callable[[str], str] = str
    """`file.py:NAME` for a name that is spelled as usual; any other as it is."""
    _registered: dict[str, T] = field(default_factory=dict)

    def register(self, name: str, thing: T) -> None:
        """Add a name for the rest of this process.

        Raises:
            InputError: the name is taken, or cannot be one.
        """
        if not name or ":" in name or name.endswith(".py"):
            raise InputError(f"{name!r} cannot name {with_article(self.kind)}; a name has no colon and is no file")
        if name in self._registered or name in self.builtin:
            raise InputError(f"there is {with_article(self.kind)} {name!r} already; choose another name")
        self._registered[name] = thing

    def names(self) -> tuple[str, ...]:
        """Every name that needs neither module nor file: built-in, registered, and of installed packages."""
        return tuple(dict.fromkeys([*self.builtin, *self._registered, *self._installed()]))

    def find(self, name: str) -> T:
        """Find the object of a name.

        Raises:
            UnknownNameError: there is nothing of that name.
            InputError: its module cannot be imported, or it is of another kind.
        """
        if name in self._registered:
            return self._called(name, self._registered[name])
        name = self.other_spelling(name)
        if name in self.builtin:
            return self._checked(name, load(self.builtin[name]))
        # Before the installed ones: listing those reads the metadata of every package, some milliseconds each time.
        if (make := self.of_files.get(Path(name).suffix.lower())) is not None:
            return self._checked(name, load(make)(name))
        if ":" in name or name.endswith(".py"):
            return self._checked(name, load(name))
        installed = self._installed()
        if name in installed:
            with _import_errors(name):
                return self._checked(name, installed[name].load())
        files = [f"file{suffix}" for suffix in self.of_files]
        allowed = [*self.names(), "module:NAME", "file.py:NAME", *files]
        raise UnknownNameError(self.kind, name, allowed, likely=self.likely, way_out=self.way_out)

    def _installed(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.group)}

    def _checked(self, name: str, thing: Any) -> T:
        checked = self.check(thing)
        if checked is None:
            raise InputError(f"{name} is {_what(thing)}, not {with_article(self.kind)}; {self.wants}")
        return self._called(name, checked)

    def _called(self, name: str, thing: T) -> T:
        if self.takes is not None:
            check_call(name, self.function_of(thing), self.takes, self.wants)
        return thing


def check_call(name: str, function: Callable[..., Any], takes: Sequence[str], wants: str) -> None:
    """See that a function of the user's own can be called with arguments in this order.

    Raises:
        InputError: it cannot; `wants` says what would do.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of what is written in C, nobody can tell
        return
    try:
        signature.bind(*takes)
    except TypeError as error:
        raise InputError(f"{name}{signature} cannot be called with ({', '.join(takes)}): {error}; {wants}") from error


def build(builders: OpenSet[Callable[[], Any]], name: str, is_one: Callable[[object], TypeGuard[M]]) -> M:
    """Build the object of a name.

    Raises:
        UnknownNameError, InputError: as `OpenSet.find`; or the builder raises, or makes what is none.
    """
    make = builders.find(name)
    try:
        made: object = make()
    except InputError:
        raise
    except Exception as error:  # of the user's own code
        raise InputError(f"{builders.kind} {name} cannot be made: {type(error).__name__}: {error}") from error
    if not is_one(made):
        raise InputError(f"{name} made {with_article(type(made).__name__)}; {builders.wants}")
    return made


def names_in(text: str) -> list[str]:
    """The names of a text that has them separated by commas."""
    return [name for part in text.split(",") if (name := part.strip())]


def listed(names: Iterable[str], last: str = "and") -> str:
    """Names in a sentence: `a, b and c`."""
    *first, end = names
    return f"{', '.join(first)} {last} {end}" if first else end


def load(place: str) -> Any:
    """Import the object at `module:NAME` or `file.py:NAME`; NAME may have dots. The file's folder, or the one that one
    works in, can be imported from.

    Raises:
        InputError: the file is not there, the module cannot be imported, or it has nothing of that name.
    """
    where, colon, name = place.rpartition(":")
    if not colon or not where or not name:
        raise InputError(f"{place!r} names no object; write module:NAME or file.py:NAME")
    module = _from_file(Path(where)) if where.endswith(".py") else _from_module(where)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            public = [known for known in vars(module) if not known.startswith("_")]
            raise UnknownNameError(f"name in {where}", name, public)
        found = getattr(found, part)
    return found


def _from_module(name: str) -> ModuleType:
    _make_importable(Path.cwd())
    with _import_errors(name):
        return importlib.import_module(name)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError(f"there is no file {path}; give the path of a Python file, as in {path.name}:NAME")
    whole = path.resolve()
    # Two files of one name are two modules, and neither stands in the way of an installed one.
    name = f"{whole.stem}_{zlib.crc32(str(whole).encode()):08x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, whole)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        _make_importable(whole.parent)
        with _import_errors(str(path)):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _make_importable(folder: Path) -> None:
    """For good: what is imported now may import more when it runs. The folder comes last, and hides nothing."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


@contextmanager
def _import_errors(name: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except ModuleNotFoundError as error:
        if error.name in ENGINE_PACKAGES:
            require_engine(f"{name}, which imports {error.name},", [error.name])
        raise InputError(
            f"{name} cannot be imported: there is no module {error.name!r}; see that it is installed"
        ) from error
    except Exception as error:
        raise InputError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error


def _what(thing: Any) -> str:
    return f"the class {thing.__name__}" if isinstance(thing, type) else f"of type {type(thing).__name__}"
