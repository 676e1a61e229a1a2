"""The CRD, read once for all tests that need it: with Python's own YAML parser that takes a while."""

from typing import Any

import jsonschema
import yaml

from tests.paths import ROOT

CRD_FILE = ROOT / "crds" / "elasticpytorchjobs.yaml"
CRD: dict[str, Any] = yaml.safe_load(CRD_FILE.read_text())
(VERSION,) = CRD["spec"]["versions"]
SCHEMA: dict[str, Any] = VERSION["schema"]["openAPIV3Schema"]
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)
