"""Writes what is made from the sources: pages on the chart's values, the API's fields and the metrics, and the dashboard.

`--check` writes nothing and says by its exit status whether they are fresh.
"""

import argparse
import sys
from pathlib import Path

import chart_values
import conditions_page
import custom_resource
import dashboard
import metrics_page
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = Path("charts/elastic-pytorch-operator")
CRD = Path("crds/elasticpytorchjobs.yaml")


def pages(root: Path) -> dict[Path, str]:
    """What each page is to hold, by its path in the repository."""
    values = (root / CHART / "values.yaml").read_text()
    about = yaml.safe_load((root / CHART / "Chart.yaml").read_text())
    intro = (Path(__file__).parent / "chart-readme.md").read_text()
    definition = yaml.safe_load((root / CRD).read_text())
    return {
        CHART / "README.md": chart_values.page(intro, about, values),
        CHART / "files" / "dashboard.json": dashboard.page(),
        Path("docs/reference-api.md"): custom_resource.page(definition),
        Path("docs/metrics.md"): metrics_page.page(),
        Path("docs/conditions.md"): conditions_page.page(),
    }


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="hack/reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; the exit status says whether the pages are fresh")
    options = parser.parse_args(arguments)
    stale = [path for path, text in pages(root).items() if not (root / path).exists() or (root / path).read_text() != text]
    if options.check:
        for path in stale:
            print(f"{path} is not what `make docs` writes", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        (root / path).write_text(pages(root)[path])
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
