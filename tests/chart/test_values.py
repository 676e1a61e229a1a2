"""values.yaml and its schema say the same, and say it of every value."""

import json
import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import yaml

from tests.chart.chart_rendering import CHART, needs_helm, template
from tests.faults import assert_none

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
TEXT = (CHART / "values.yaml").read_text()
VALUES: dict[str, Any] = yaml.safe_load(TEXT)

PROBES = {f"probes.{name}" for name in ("startup", "readiness", "liveness")}
# What these hold is the user's own: labels, quantities, tolerations.
FREE = {"resources", "podSecurityContext", "securityContext", "metrics.dashboard.labels", *PROBES}


def paths_of_values(values: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict) and value and f"{path}{name}" not in FREE:
            yield from paths_of_values(value, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def paths_of_schema(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, child in schema["properties"].items():
        if "properties" in child and f"{path}{name}" not in {*FREE, "affinity", "strategy"}:
            yield from paths_of_schema(child, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def objects_of_schema(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        if "properties" in schema and "type" in schema:
            yield path, schema
        for name, child in schema.items():
            yield from objects_of_schema(child, f"{path}/{name}")


def test_schema_and_values_know_the_same_names() -> None:
    assert set(paths_of_schema(SCHEMA)) == set(paths_of_values(VALUES))


def test_every_object_of_the_schema_refuses_what_it_does_not_know() -> None:
    assert_none(
        path
        for path, schema in objects_of_schema(SCHEMA)
        if schema.get("additionalProperties") is not False
    )


def test_every_value_has_a_comment() -> None:
    documented = {path.rpartition(".")[2] for path in paths_of_values(VALUES)}
    lines = TEXT.splitlines()
    bare = [
        line
        for before, line in zip(["", *lines], lines, strict=False)
        if line.strip().partition(":")[0] in documented
        and not line.lstrip().startswith(("#", "-"))
        and not before.lstrip().startswith("#")
        and before.strip() != "labels:"
    ]
    assert not bare


UNKNOWN = [
    "replicaCount=0",
    'replicaCount="two"',
    "replicas=2",
    'image.tag="a tag"',
    'image.tag="sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"',
    'image.digest="sha256:1"',
    'global.imageRegistry="https://registry.example.com"',
    "global.imagePullSecrets=[{}]",
    "rbac.create=1",
    'extraArgs="--x"',
    "extraEnv=[{}]",
    "topologySpreadConstraints=[{}]",
    'image.pullPolicy="Sometimes"',
    'logLevel="info"',
    'crds.keep="yes"',
    'podLabels={"a":1}',
    'nodeSelector=["a"]',
    'imagePullSecrets=["registry"]',
    'resources={"cpu":"1"}',
    'watchNamespaces="a,b"',
    'announcedEnds={"sure":["acme.io/going:Never"]}',
    'nodeFaults={"maybe":[]}',
    'watchNamespaces=["a","a"]',
    'watchNamespaces=["A"]',
    'gangSchedulers=["Yunikorn"]',
    'resources={"limits":{"memory":"lots"}}',
    'affinity={"nodes":{}}',
    'networkPolicy.metricsFrom=[{"podSelector":{"app":"prometheus"}}]',
    'metrics.serviceMonitor.interval="often"',
    'metrics.readers=[{"name":"prometheus"}]',
    'fullnameOverride="Not a name"',
    f'fullnameOverride="{"a" * 41}"',
    "apiServer.maxWrites=5",
    'strategy={"kind":"Recreate"}',
    'podDisruptionBudget.maxUnavailable="all"',
    'extraObjects=[{"kind":"ConfigMap"}]',
]


def at_once(settings: list[str]) -> Iterator[list[str]]:
    """The settings in groups, none of which sets a value twice: helm tells all faults of one."""
    of_value: dict[str, list[str]] = {}
    for setting in settings:
        of_value.setdefault(setting.partition("=")[0], []).append(setting)
    for group in zip_longest(*of_value.values()):
        yield [setting for setting in group if setting]


def is_refused(setting: str, told: str) -> bool:
    """Whether helm tells of the value, of something in it, or that there is no such value."""
    place = "/" + setting.partition("=")[0].replace(".", "/")
    above, _, name = place.rpartition("/")
    complaints = re.findall(r"- at '(.*?)': (.*)", told)
    return any(
        f"{at}/".startswith(f"{place}/")
        or (at == above and f"'{name}'" in words and "additional properties" in words)
        for at, words in complaints
    )


@needs_helm
def test_values_that_the_chart_does_not_know_are_refused() -> None:
    results = [(group, template(*group)) for group in at_once(UNKNOWN)]
    assert all(result.returncode for _, result in results)
    assert all(
        "values don't meet the specifications of the schema" in result.stderr
        for _, result in results
    )
    assert_none(
        setting
        for group, result in results
        for setting in group
        if not is_refused(setting, result.stderr)
    )
