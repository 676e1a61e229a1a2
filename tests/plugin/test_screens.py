"""The pictures of the documentation."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

pytestmark = pytest.mark.process


def test_each_picture_of_the_documentation_can_be_drawn_anew(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "hack" / "screens"), str(tmp_path)], check=True, timeout=100)
    wanted = re.findall(r"!\[.*\]\((screens/.*\.png)\)", (ROOT / "docs" / "plugin.md").read_text())
    assert wanted
    for picture in wanted:
        assert (ROOT / "docs" / picture).is_file()
        assert (tmp_path / Path(picture).name).read_bytes().startswith(b"\x89PNG")
