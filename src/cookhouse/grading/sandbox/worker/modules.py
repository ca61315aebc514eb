"""Modules made from texts. Also sent as text to remote sandboxes, so it stands alone."""

import sys
import types


def load_modules(texts: dict[str, str]) -> None:
    """Make each importable under its name, dotted or not; texts import only those before them."""
    for name, text in texts.items():
        module = types.ModuleType(name)
        package = name.rpartition(".")[0]
        if package:
            module.__package__ = package
            sys.modules.setdefault(package, types.ModuleType(package)).__path__ = []
        sys.modules[name] = module
        exec(compile(text, f"{name}.py", "exec"), module.__dict__)
