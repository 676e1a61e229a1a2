"""The CRD, read once for all tests: Python's own YAML parser takes a while."""

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import yaml
from elastic_pytorch_operator.spec.schema.validator import job_schema

from tests.paths import ROOT

CRD_FILE = ROOT / "crds" / "elasticpytorchjobs.yaml"
CRD: dict[str, Any] = yaml.safe_load(CRD_FILE.read_text())
(VERSION,) = CRD["spec"]["versions"]
SCHEMA: dict[str, Any] = VERSION["schema"]["openAPIV3Schema"]
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)


def rules(schema: Any) -> Iterator[Any]:
    """The rules in CEL of a schema and of all below it."""
    yield from schema.get("x-kubernetes-validations", ())
    for child in [
        *schema.get("properties", {}).values(),
        *([schema["items"]] if "items" in schema else []),
    ]:
        yield from rules(child)


# By the text in CEL of a rule that judges a job alone: what a refusal says, with any numbers.
RULE_WORDS = {
    rule["rule"]: re.compile(
        f"{re.escape(rule['fieldPath'].lstrip('.'))}: "
        f"{re.escape(rule['message']).replace('%d', '[0-9]+')}"
    )
    for rule in rules(job_schema())
}
