"""Builds the pages as a site that needs no network. Usage: hack/website FOLDER [MERMAID].

The pages with the site's additions come into FOLDER/source, and the site into FOLDER/html. MERMAID
is the script that draws the diagrams; without it the site shows their text. The exit status is 1
if a link leads nowhere.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from source_pages import copy_pages

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    source, html = folder / "source", folder / "html"
    copy_pages(ROOT, source)
    (source / "_static").mkdir()
    own = ROOT / "hack" / "website"
    for file in [own / "diagrams.js", own / "tables.css", *map(Path, arguments[1:])]:
        shutil.copy(file, source / "_static" / file.name)
    configuration = ["-c", str(own), "-D", f"html_static_path={source / '_static'}"]
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going"]
    command += [*configuration, "-d", str(folder / "trees"), str(source), str(html)]
    status = subprocess.run(command, check=False).returncode
    if status == 0:
        shutil.copy(html / "README.html", html / "index.html")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
