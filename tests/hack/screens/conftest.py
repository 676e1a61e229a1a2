"""The programs that draw the documentation's pictures are a few modules, not a package: their folder is put on the path."""

import sys

from tests.paths import ROOT

sys.path.insert(0, str(ROOT / "hack" / "screens"))
