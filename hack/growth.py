"""Prints the size of the repository beside the last landed figures, the last row of growth.tsv.

It counts the bytes of Python, shell, JavaScript, CSS and HTML, the fields of the CRD, and the
seconds of both halves of the last `make test`.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml
from field_table import fields

TABLE = Path("hack/growth.tsv")
CRD = Path("crds/elasticpytorchjobs.yaml")
HALVES = Path(".cluster/times/halves")  # lines such as `fast 512`, of hack/test.sh
PARTS = {
    "product": ("operator", "worker_image", "plugin", "local"),
    "hack": ("hack",),
    "tests": ("tests",),
}
SUFFIXES = {".py", ".sh", ".js", ".css", ".html"}


def measure() -> Iterator[tuple[str, int]]:
    for part, folders in PARTS.items():
        listing = ["git", "ls-files", "-z", *folders]
        listed = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
        files = [Path(name) for name in listed.split("\0") if Path(name).suffix in SUFFIXES]
        yield f"{part} bytes", sum(file.stat().st_size for file in files if file.exists())
    (version,) = yaml.safe_load(CRD.read_text())["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]
    for part in ("spec", "status"):
        yield f"{part} fields", sum(1 for _ in fields(part, schema[part]))
    if HALVES.exists():
        for line in HALVES.read_text().splitlines():
            half, seconds = line.split()
            yield f"{half} half seconds", int(seconds)


def comparison(landed: Mapping[str, str], now: Mapping[str, int]) -> str:
    rows = [f"{'':<18} {'now':>10} {landed.get('date', 'landed'):>10}"]
    for name, value in now.items():
        before = int(landed.get(name) or 0)
        change = f"  {value - before:+,} ({(value - before) / before:+.1%})" if before else ""
        rows.append(f"{name:<18} {value:>10,} {before:>10,}{change}")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make growth", description=__doc__)
    parser.add_argument(
        "--land", action="store_true", help=f"add the figures of this checkout to {TABLE}"
    )
    options = parser.parse_args()
    heading, *rows = [line.split("\t") for line in TABLE.read_text().splitlines()]
    now = dict(measure())
    if options.land:
        row = [time.strftime("%Y-%m-%d"), *(str(now.get(name, "")) for name in heading[1:])]
        TABLE.write_text(TABLE.read_text() + "\t".join(row) + "\n")
    else:
        print(comparison(dict(zip(heading, rows[-1], strict=True)), now))
    return 0


if __name__ == "__main__":
    sys.exit(main())
