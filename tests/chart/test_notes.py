"""NOTES.txt: what to do next, what is off, and where the client is."""

import shutil
import textwrap
from pathlib import Path

import pytest
import yaml

from tests.chart.chart_rendering import CHART, REGISTRY, helm, needs_helm
from tests.faults import assert_none


@needs_helm
def test_notes_tell_what_to_do_next_and_what_is_off(tmp_path: Path) -> None:
    text = notes(tmp_path)
    told = [
        "kubectl rollout status deployment/elastic-pytorch-operator --namespace the-namespace",
        "registry.example.com/elastic-pytorch-agent:",
        "pipx install ./plugin",
        "elastic-pytorch-operator-metrics-reader to Prometheus",
        "- Kueue: jobs with the label kueue.x-k8s.io/queue-name do not start (kueue.enabled)",
        "- gang schedulers: the operator may create no PodGroup",
        "- alerts (metrics.prometheusRule)",
    ]
    assert_none(words for words in told if words not in text)


@needs_helm
@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("crds.enabled=false", "apply crds/elasticpytorchjobs.yaml"),
        ("crds.keep=false", "deletes the CRD"),
        ("rbac.create=false", "No roles are created"),
        ("metrics.secure=false", "http on port 8781, for every pod"),
    ],
)
def test_notes_depend_on_the_values(setting: str, words: str, tmp_path: Path) -> None:
    assert words in notes(tmp_path, setting)


@needs_helm
def test_notes_name_nothing_as_off_that_is_on(tmp_path: Path) -> None:
    everything = (
        "kueue.enabled=true",
        'gangSchedulers=["Coscheduling"]',
        "metrics.serviceMonitor.enabled=true",
        "metrics.prometheusRule.enabled=true",
        "metrics.dashboard.enabled=true",
        "networkPolicy.enabled=true",
        "policies.ttlRequired.enabled=true",
    )
    assert "Disabled by the values" not in notes(tmp_path, *everything)


def notes(tmp_path: Path, *settings: str) -> str:
    # `helm template` leaves the notes out, and `helm install --dry-run` wants a cluster: so they
    # are rendered as an object.
    chart = shutil.copytree(CHART, tmp_path / CHART.name)
    text = (chart / "templates" / "NOTES.txt").read_text()
    definitions, end, words = text.rpartition("{{- end -}}\n")
    (chart / "templates" / "notes.yaml").write_text(
        f"{definitions}{end}notes: |\n" + textwrap.indent(words, "  ")
    )
    result = helm(
        "template",
        "release",
        str(chart),
        "--namespace=the-namespace",
        "--kube-version=1.34.0",
        "--show-only=templates/notes.yaml",
        *(f"--set-json={setting}" for setting in settings),
        f"--set=global.imageRegistry={REGISTRY}",
    )
    assert result.returncode == 0, result.stderr
    return str(yaml.safe_load(result.stdout)["notes"])
