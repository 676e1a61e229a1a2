"""docs/operate/security.md lists the permissions of the chart's roles, and no other."""

import re

from tests.chart.chart_rendering import needs_helm, render
from tests.paths import ROOT

PAGE = ROOT / "docs" / "operate" / "security.md"
EVERYTHING = (
    "kueue.enabled=true",
    'gangSchedulers=["Coscheduling","Kubernetes"]',
    'watchNamespaces=["a"]',
)
BY_KUBERNETES = "system:service-account-issuer-discovery"

Permission = tuple[str, str, str, str]  # where, API group, resource, verb


def rows() -> list[list[str]]:
    (table,) = re.findall(
        r"^\| where \| API group .*\n\|---.*\n((?:\|.*\n)+)", PAGE.read_text(), re.MULTILINE
    )
    return [[cell.strip() for cell in row.strip("|\n").split("|")] for row in table.splitlines()]


def told() -> set[Permission]:
    found = set()
    for where, what, verbs, why, _ in rows():
        if BY_KUBERNETES not in why:
            *group, resource = re.findall(r"`([^`]+)`", what)
            found |= {(where, "".join(group), resource, verb) for verb in verbs.split(", ")}
    return found


def granted() -> set[Permission]:
    """What the operator's account may do, by the roles that are bound to it."""
    objects = render(*EVERYTHING)
    bindings = [o for o in objects if o["kind"].endswith("RoleBinding")]
    bound = {
        (b["roleRef"]["kind"], b["metadata"].get("namespace"), b["roleRef"]["name"])
        for b in bindings
    }
    places = {None: "cluster", "the-namespace": "own", "a": "jobs"}
    roles = [
        o
        for o in objects
        if (o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) in bound
    ]
    return {
        (places[role["metadata"].get("namespace")], group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@needs_helm
def test_every_permission_is_told_and_nothing_that_is_none() -> None:
    assert told() == granted()


def test_every_permission_has_a_reason_and_a_way_without() -> None:
    assert len(rows()) > 20
    for row in rows():
        assert all(row), row


@needs_helm
def test_what_a_value_switches_off_is_not_granted() -> None:
    by_default = str(
        [o["rules"] for o in render("metrics.secure=false") if o["kind"].endswith("Role")]
    )
    optional = ("podgroups", "workloads", "subjectaccessreviews")
    for resource in (*optional, "resourceflavors", "priorityclasses"):
        assert resource not in by_default
