"""The scripts that make the embedded assets are not installed: tests import them from the checkout."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
