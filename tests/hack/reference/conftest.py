"""The program that writes the references is a few modules, not a package: its folder is put on the path."""

import sys

from tests.paths import ROOT

sys.path.insert(0, str(ROOT / "hack" / "reference"))
