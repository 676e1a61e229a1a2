"""Checks the English that people read: words that the project does without, and sentences that are too long.

Prints `file:line: the word, and what to write instead`; the exit status is 1 if there is anything to print.
"""

import sys
from pathlib import Path

import passages
from words import objections

ROOT = Path(__file__).resolve().parents[2]

# How many words a sentence may have, in pages and in code: well above the mean of about 20 that reads best.
IN_PAGES, IN_CODE = 35, 35
# The generated pages whose sources are among them are left out.
READERS = {
    "README.md": passages.markdown,
    "CONTRIBUTING.md": passages.markdown,
    "SECURITY.md": passages.markdown,
    "docs/**/*.md": passages.markdown,
    "examples/**/README.md": passages.markdown,
    "examples/**/*.py": passages.python,
    "hack/reference/*.md": passages.markdown,
    "CHANGELOG.md": passages.unreleased,
    "crds/*.yaml": passages.schema,
    "charts/*/values.yaml": passages.comments,
    "charts/*/files/alerts.yaml": passages.schema,
    "charts/*/files/*.py": passages.python,
    "charts/*/templates/NOTES.txt": passages.plain,
    "operator/**/*.py": passages.python,
    "plugin/**/*.py": passages.python,
    "local/**/*.py": passages.python,
    "worker_image/**/*.py": passages.python,
}
GENERATED = {"docs/reference/api.md", "docs/reference/metrics.md", "docs/reference/python-api.md"}


def check(root: Path) -> list[str]:
    """What is to be written in another way, file by file."""
    found = []
    for pattern, reader in READERS.items():
        max_words = IN_CODE if reader is passages.python else IN_PAGES
        for path in sorted(root.glob(pattern)):
            if (name := str(path.relative_to(root))) in GENERATED:
                continue
            lines = [
                (passage.line + passage.text[:offset].count("\n"), what)
                for passage in reader(path.read_text())
                for offset, what in objections(passage.text, max_words)
            ]
            found += [f"{name}:{line}: {what}" for line, what in sorted(lines)]
    return found


if __name__ == "__main__":
    found = check(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)
