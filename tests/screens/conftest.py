"""The programs that draw the documentation's pictures are a few modules, not a package: their folder is put on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "hack" / "screens"))
