"""Fine-tune language models by recipe, on the hosted Tinker service or on cookhouse's own engine."""

import sys

__version__ = "0.1.0"

if sys.platform == "win32":
    raise ImportError("cookhouse does not run on Windows; use it inside WSL (https://learn.microsoft.com/windows/wsl)")
