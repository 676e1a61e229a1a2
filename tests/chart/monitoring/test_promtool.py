"""promtool reads the rules and the dashboard, and has each alert fire on alerts_test.yaml."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.chart_rendering import needs_helm, only, render
from tests.chart.monitoring.test_alerts import NAMES
from tests.chart.monitoring.test_dashboard import EXPRESSIONS
from tests.paths import ROOT

CASES = Path(__file__).with_name("alerts_test.yaml")
PROMTOOL = shutil.which(
    "promtool", path=f"{ROOT / '.cluster' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
)
VARIABLES = {"$__rate_interval": "5m", "$__range": "1d", "$namespace": ".*", "$job": ".*"}

pytestmark = [
    pytest.mark.long,
    pytest.mark.process,
    pytest.mark.skipif(
        PROMTOOL is None,
        reason="needs promtool, on the PATH or in .cluster/bin: "
        "hack/promtool.sh says why there is none",
    ),
]


def promtool(*arguments: str, folder: Path) -> str:
    """Runs promtool in a folder, and returns what it prints."""
    assert PROMTOOL is not None
    ended = subprocess.run(
        [PROMTOOL, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def cases() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(CASES.read_text())
    for test in found["tests"]:
        for rule in test["alert_rule_test"]:
            for alert in rule.get("exp_alerts", ()):
                alert["exp_annotations"]["runbook"] = (
                    f"docs/operate/operations.md#{rule['alertname'].lower()}"
                )
    return found


@needs_helm
def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    rules = only(render("metrics.prometheusRule.enabled=true"), "PrometheusRule")["spec"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(cases(), sort_keys=False))
    assert f"{len(NAMES)} rules found" in promtool(
        "check", "rules", "--lint-fatal", "rules.yaml", folder=tmp_path
    )
    promtool("test", "rules", "cases.yaml", folder=tmp_path)


def test_each_alert_fires_in_a_case() -> None:
    rules = [rule for test in cases()["tests"] for rule in test["alert_rule_test"]]
    assert {rule["alertname"] for rule in rules if rule.get("exp_alerts")} == set(NAMES)


def test_dashboard_asks_in_promql(tmp_path: Path) -> None:
    rules = []
    for number, expression in enumerate(EXPRESSIONS):
        for name, value in VARIABLES.items():
            expression = expression.replace(name, value)  # noqa: PLW2901
        rules.append({"record": f"panel:{number}", "expr": expression})
    (tmp_path / "rules.yaml").write_text(
        yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]})
    )
    promtool("check", "rules", "--lint=none", "rules.yaml", folder=tmp_path)
