"""Writes what is made from the sources: pages on the chart's values, the API's fields and the metrics, terminals, times.

`--check` writes nothing and says by its exit status whether they are fresh.
"""

import argparse
import sys
from pathlib import Path

import chart_values
import custom_resource
import field_table
import python_api
import screens
import source_tables
import template_resources
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART, DOCS = ROOT / "charts" / "elastic-pytorch-operator", ROOT / "docs"
SCHEMA = ROOT / "operator" / "elastic_pytorch_operator" / "spec" / "schema" / "job.json"


def pages() -> dict[Path, str]:
    values = (CHART / "values.yaml").read_text()
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    intro = (ROOT / "hack" / "reference" / "chart-readme.md").read_text()
    resource = (ROOT / "crds" / "elasticpytorchjobs.yaml").read_text()
    definition = yaml.safe_load(resource)
    templates = template_resources.resource(definition)
    return {
        CHART / "files" / "elasticpytorchjobs.yaml": resource,
        **{
            folder / template_resources.FILE: templates
            for folder in (ROOT / "crds", CHART / "files")
        },
        SCHEMA: custom_resource.operators_schema(definition),
        CHART / "README.md": chart_values.page(intro, about, values),
        DOCS / "reference" / "api.md": custom_resource.page(definition)
        + field_table.section(definition),
        DOCS / "reference" / "python-api.md": python_api.page(),
        **{
            DOCS / name: source_tables.page((DOCS / name).read_text(), blocks)
            for name, blocks in source_tables.BLOCKS.items()
        },
        **{
            DOCS / "use" / "screens" / name: picture
            for name, picture in screens.draw_screens().items()
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="hack/reference", description=__doc__)
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; the exit status says whether the pages are fresh",
    )
    only_check = parser.parse_args().check
    stale = {
        path: text
        for path, text in pages().items()
        if not path.exists() or path.read_text() != text
    }
    for path, text in stale.items():
        if only_check:
            print(f"{path.relative_to(ROOT)} is not what `make docs` writes", file=sys.stderr)
        else:
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")
    return 1 if only_check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
