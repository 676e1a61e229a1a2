"""Alerts ask for what the operator tells, each has its runbook, and values change them."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.chart.chart_rendering import CHART, Object, needs_helm, only, render, template
from tests.chart.monitoring.promql import grouped_by, problems_of
from tests.faults import assert_none
from tests.paths import ROOT

ALERTS: list[dict[str, Any]] = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
RUNBOOKS = (ROOT / "docs" / "operate" / "operations.md").read_text()
NAMES = [alert["alert"] for alert in ALERTS]
ENABLED = "metrics.prometheusRule.enabled=true"


def rules(*settings: str) -> dict[str, Object]:
    (group,) = only(render(ENABLED, *settings), "PrometheusRule")["spec"]["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def faults_of(alert: dict[str, Any]) -> Iterator[str]:
    """What an alert asks for that is not told, and what it does not say of itself."""
    yield from problems_of(alert["expr"].replace("$threshold", "1"))
    if ("$threshold" in alert["expr"]) is not ("threshold" in alert):
        yield "it has a threshold that it does not use, or uses one that it does not have"
    for label in sorted(
        set(re.findall(r"\$labels\.(\w+)", alert["summary"])) - grouped_by(alert["expr"])
    ):
        yield f"its summary names {label}, which is empty: the expression does not group by it"
    if set(alert) - {"threshold", "replicas"} != {"alert", "expr", "for", "severity", "summary"}:
        yield f"it has {sorted(alert)}"
    if alert["severity"] not in ("critical", "warning", "info") or not alert["summary"].endswith(
        "."
    ):
        yield f"{alert['severity']}: {alert['summary']}"
    section = RUNBOOKS.partition(f"\n### {alert['alert']}\n")[2].partition("\n### ")[0]
    if len(section.split()) <= 20:
        yield "its runbook does not say what it means, and what to do"


def test_alerts_ask_for_what_is_told_and_have_runbooks() -> None:
    assert_none(f"{alert['alert']}: {fault}" for alert in ALERTS for fault in faults_of(alert))


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("max(elastic_pytorch_jbos) > 1", "there is no elastic_pytorch_jbos"),
        (
            "sum(elastic_pytorch_interruption_seconds)",
            "there is no elastic_pytorch_interruption_seconds",
        ),
        ('max(elastic_pytorch_jobs{stat="Running"})', "elastic_pytorch_jobs has no label stat"),
        (
            'max(elastic_pytorch_jobs{state=~"Running|Runing"})',
            "elastic_pytorch_jobs has no state Running|Runing",
        ),
        (
            "sum(elastic_pytorch_steps_lost_total) > 1",
            "elastic_pytorch_steps_lost_total only ever grows",
        ),
        ("max by (node) (elastic_pytorch_stragglers)", "no series has the label node"),
        ("max((elastic_pytorch_stragglers)", "parentheses do not match"),
        ("1 > 2", "asks for nothing"),
    ],
)
def test_expression_that_asks_for_nothing_that_is_told_is_found(
    expression: str, problem: str
) -> None:
    assert problem in problems_of(expression)


def test_no_runbook_is_of_an_alert_that_is_gone() -> None:
    assert re.findall(r"^### (ElasticPyTorch\w+)$", RUNBOOKS, re.MULTILINE) == NAMES


def test_table_of_the_runbooks_has_the_defaults() -> None:
    table = re.findall(
        r"^\| \[(\w+)\]\(#(\w+)\) \| (\S*) \| (\S+) \| (\w+) \|", RUNBOOKS, re.MULTILINE
    )
    assert table == [
        (
            alert["alert"],
            alert["alert"].lower(),
            str(alert.get("threshold", "")) or "-",
            alert["for"],
            alert["severity"],
        )
        for alert in ALERTS
    ]


def test_schema_knows_the_alerts_by_name() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    known = schema["properties"]["metrics"]["properties"]["prometheusRule"]["properties"]["alerts"][
        "propertyNames"
    ]
    assert known["enum"] == NAMES


@needs_helm
def test_alerts_point_to_their_runbooks() -> None:
    found = rules('metrics.prometheusRule.runbook="https://wiki.example.com/epj"')
    assert list(found) == NAMES
    assert not [rule["expr"] for rule in found.values() if "$threshold" in rule["expr"]]
    assert "{{ $labels.namespace }}" in found["ElasticPyTorchJobsWait"]["annotations"]["summary"]
    for name, rule in found.items():
        assert rule["annotations"]["runbook"] == f"docs/operate/operations.md#{name.lower()}"
        assert rule["annotations"]["runbook_url"] == f"https://wiki.example.com/epj#{name.lower()}"


@needs_helm
def test_alerts_have_no_link_that_leads_nowhere() -> None:
    assert {tuple(rule["annotations"]) for rule in rules().values()} == {("summary", "runbook")}


@needs_helm
def test_values_change_thresholds_durations_severities_and_labels() -> None:
    changed = '{"threshold":0.5,"for":"10m","severity":"page","labels":{"team":"ml"}}'
    found = rules(
        f'metrics.prometheusRule.alerts={{"ElasticPyTorchJobsWait":{changed},"ElasticPyTorchStragglers":{{"enabled":false}}}}',
        'metrics.prometheusRule.alertLabels={"team":"platform","cluster":"a"}',
    )
    wait, other = found["ElasticPyTorchJobsWait"], found["ElasticPyTorchJobFailed"]
    assert wait["expr"].endswith(" > 0.5")
    assert (wait["for"], wait["labels"]) == (
        "10m",
        {"severity": "page", "team": "ml", "cluster": "a"},
    )
    assert (other["for"], other["labels"]) == (
        "0m",
        {"severity": "info", "team": "platform", "cluster": "a"},
    )
    assert set(NAMES) - set(found) == {"ElasticPyTorchStragglers"}


@needs_helm
def test_threshold_of_zero_is_one() -> None:
    assert rules('metrics.prometheusRule.alerts={"ElasticPyTorchJobsWait":{"threshold":0}}')[
        "ElasticPyTorchJobsWait"
    ]["expr"].endswith(" > 0")


@needs_helm
def test_one_replica_misses_no_other() -> None:
    assert set(NAMES) - set(rules("replicaCount=1")) == {"ElasticPyTorchReplicasMissing"}


@needs_helm
@pytest.mark.parametrize(
    ("alerts", "words"),
    [
        ('{"ElasticPyTorchJobWaits":{"threshold":1}}', "ElasticPyTorchJobWaits"),
        ('{"ElasticPyTorchJobsWait":{"treshold":1}}', "treshold"),
        ('{"ElasticPyTorchOperatorAbsent":{"threshold":1}}', "has no threshold that can be set"),
    ],
)
def test_change_that_would_have_no_effect_is_refused(alerts: str, words: str) -> None:
    refused = template(ENABLED, f"metrics.prometheusRule.alerts={alerts}")
    assert refused.returncode
    assert words in refused.stderr
