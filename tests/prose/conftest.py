"""The program that checks the prose is a few modules, not a package: its folder is put on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "hack" / "prose"))
