"""Writes what is made from the sources: pages on the chart's values, the API's fields and the metrics, a flowchart, terminals.

`--check` writes nothing and says by its exit status whether they are fresh.
"""

import argparse
import sys
from pathlib import Path

import chart_values
import custom_resource
import metrics_page
import packages
import screens
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = Path("charts/elastic-pytorch-operator")
CRD = Path("crds/elasticpytorchjobs.yaml")
ARCHITECTURE = Path("docs/architecture.md")


def pages(root: Path) -> dict[Path, str]:
    """Returns what each page is to hold, by its path in the repository."""
    values = (root / CHART / "values.yaml").read_text()
    about = yaml.safe_load((root / CHART / "Chart.yaml").read_text())
    intro = (Path(__file__).parent / "chart-readme.md").read_text()
    definition = yaml.safe_load((root / CRD).read_text())
    return {
        CHART / "README.md": chart_values.page(intro, about, values),
        Path("docs/reference-api.md"): custom_resource.page(definition),
        Path("docs/metrics.md"): metrics_page.page(),
        ARCHITECTURE: packages.page((root / ARCHITECTURE).read_text()),
        **{Path("docs/screens") / name: picture for name, picture in screens.draw_screens().items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="hack/reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; the exit status says whether the pages are fresh")
    only_check = parser.parse_args().check
    stale = {
        path: text for path, text in pages(ROOT).items() if not (ROOT / path).exists() or (ROOT / path).read_text() != text
    }
    for path, text in stale.items():
        if only_check:
            print(f"{path} is not what `make docs` writes", file=sys.stderr)
        else:
            (ROOT / path).write_text(text)
            print(f"wrote {path}")
    return 1 if only_check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
