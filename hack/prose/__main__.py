"""Checks the English that people read: words that the project does without, and sentences that are too long.

Prints `file:line: the word, and what to write instead`; the exit status is 1 if there is anything to print.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import passages
from passages import Passage
from words import objections

ROOT = Path(__file__).resolve().parents[2]

Reader = Callable[[str], Iterator[Passage]]
# How many words a sentence may have: in what users read, and in code, where docstrings have few readers.
IN_PAGES, IN_CODE = 25, 30
# The generated pages whose sources are among them are left out.
READERS: dict[str, tuple[Reader, int]] = {
    "README.md": (passages.markdown, IN_PAGES),
    "CONTRIBUTING.md": (passages.markdown, IN_PAGES),
    "SECURITY.md": (passages.markdown, IN_PAGES),
    "docs/**/*.md": (passages.markdown, IN_PAGES),
    "examples/**/README.md": (passages.markdown, IN_PAGES),
    "examples/**/*.py": (passages.python, IN_CODE),
    "hack/reference/*.md": (passages.markdown, IN_PAGES),
    "CHANGELOG.md": (passages.unreleased, IN_PAGES),
    "crds/*.yaml": (passages.schema, IN_PAGES),
    "charts/*/values.yaml": (passages.comments, IN_PAGES),
    "charts/*/files/alerts.yaml": (passages.schema, IN_PAGES),
    "charts/*/files/*.py": (passages.python, IN_CODE),
    "charts/*/templates/NOTES.txt": (passages.plain, IN_PAGES),
    "operator/**/*.py": (passages.python, IN_CODE),
    "plugin/**/*.py": (passages.python, IN_CODE),
    "worker_image/**/*.py": (passages.python, IN_CODE),
}
GENERATED = {"docs/reference-api.md", "docs/metrics.md"}


def check(root: Path) -> list[str]:
    """What is to be written in another way, file by file."""
    found = []
    for pattern, (reader, most_words) in READERS.items():
        for path in sorted(root.glob(pattern)):
            name = str(path.relative_to(root))
            if name in GENERATED:
                continue
            lines = [
                (passage.line + passage.text[:offset].count("\n"), what)
                for passage in reader(path.read_text())
                for offset, what in objections(passage.text, most_words)
            ]
            found += [f"{name}:{line}: {what}" for line, what in sorted(lines)]
    return found


def main(root: Path = ROOT) -> int:
    """Print what is found below a folder, the repository's by default."""
    found = check(root)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:2])))
