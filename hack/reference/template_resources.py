"""The definition of templates, from that of jobs: the same fields, without a job's own.

Templates and jobs have the same types and bounds. A job's rules about several fields hold for the
two together, and the operator checks them when it reads the template. Descriptions are in the
definition of jobs alone.
"""

from collections.abc import Mapping
from typing import Any

import yaml
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.spec.platform.job_template import NOT_OF_TEMPLATES

Schema = Mapping[str, Any]

HEAD = "# Made from elasticpytorchjobs.yaml by `make docs`. The fields are described there.\n"
KIND = names.TEMPLATE_KIND
PLURAL = f"{KIND.lower()}s"
FILE = f"{PLURAL}.yaml"
ABOUT = (
    "A template for the ElasticPyTorchJobs of all namespaces, which name it in "
    "`spec.templateRef`. Its spec never changes."
)
SPEC = (
    "What jobs have that say nothing else themselves; `kubectl explain epj.spec` describes "
    "the fields."
)
IMMUTABLE = {
    "rule": "self == oldSelf",
    "message": "field is immutable: make a template of another name",
}
NAMED = {
    "rule": "self.exists(container, container.name == 'pytorch')",
    "message": (
        "must contain one that is named pytorch: a job's own container of that name is merged "
        "with it"
    ),
}
IMAGE = ".spec.template.spec.containers[?(@.name=='pytorch')].image"
COLUMNS = [
    {"name": "Image", "type": "string", "jsonPath": IMAGE},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]
INCOMPLETE = ("required", "x-kubernetes-validations")  # as the job may add what is missing
LEFT_OUT = ("description", "default")


def resource(definition: Schema) -> str:
    (version,) = definition["spec"]["versions"]
    spec = _part(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
    spec["properties"] = {
        name: child for name, child in spec["properties"].items() if name not in NOT_OF_TEMPLATES
    }
    containers = spec["properties"]["template"]["properties"]["spec"]["properties"]["containers"]
    rules = containers["x-kubernetes-validations"]
    of_templates = [rule for rule in rules if "size() <= 1" not in rule["rule"]]
    containers["x-kubernetes-validations"] = [NAMED, *of_templates]
    schema = {
        "description": ABOUT,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {"description": SPEC, **spec, "x-kubernetes-validations": [IMMUTABLE]},
        },
    }
    served = {"name": version["name"], "served": True, "storage": True}
    served["additionalPrinterColumns"] = COLUMNS
    kinds = {"kind": KIND, "listKind": f"{KIND}List", "plural": PLURAL, "singular": KIND.lower()}
    found = {
        "apiVersion": definition["apiVersion"],
        "kind": definition["kind"],
        "metadata": {"name": f"{PLURAL}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "scope": "Cluster",
            "names": {**kinds, "shortNames": ["cepjt"]},
            "versions": [{**served, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    return HEAD + yaml.dump(found, Dumper=_Plain, sort_keys=False, width=120)


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _part(schema: Schema, *, in_list: bool = False) -> dict[str, Any]:
    """A part of a schema: items of a list are whole, an object may lack what the job has."""
    whole = in_list or "properties" not in schema
    omitted = LEFT_OUT if whole else (*LEFT_OUT, *INCOMPLETE)
    found = {key: value for key, value in schema.items() if key not in omitted}
    if "properties" in schema:
        found["properties"] = {
            name: _part(child, in_list=in_list) for name, child in schema["properties"].items()
        }
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            found[key] = _part(schema[key], in_list=True)
    return found
