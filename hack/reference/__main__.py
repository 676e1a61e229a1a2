"""Writes what is made from the sources: reference pages, pictures of terminals, schemas.

`--check` writes nothing, and its exit status says whether they are fresh.
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
    folders = (ROOT / "crds", CHART / "files")
    fields = custom_resource.page(definition) + field_table.section(definition)
    blocks = source_tables.BLOCKS.items()
    pictures = screens.draw_screens().items()
    return {
        CHART / "files" / "elasticpytorchjobs.yaml": resource,
        **{folder / template_resources.FILE: templates for folder in folders},
        SCHEMA: custom_resource.operators_schema(definition),
        CHART / "README.md": chart_values.page(intro, about, values),
        DOCS / "reference" / "api.md": fields,
        DOCS / "reference" / "python-api.md": python_api.page(),
        **{
            DOCS / name: source_tables.page((DOCS / name).read_text(), made)
            for name, made in blocks
        },
        **{DOCS / "use" / "screens" / name: picture for name, picture in pictures},
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
