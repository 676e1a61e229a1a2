"""Kueue's manager, with another configuration than the shipped one while a test needs it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from tests.e2e.job_under_test import run_kubectl
from tests.paths import ROOT
from tests.waiting import until

NAMESPACE = "kueue-system"
CONFIG_MAP = "kueue-manager-config"
DEPLOYMENT = "deployment/kueue-controller-manager"
FILE = "controller_manager_config.yaml"
PROBE = ROOT / "hack" / "kueue" / "probe.yaml"
RESTART_SECONDS = 90.0


@contextmanager
def configured(**changes: dict[str, Any]) -> Iterator[None]:
    """Lays changes over the manager's configuration; the shipped one is back at the end."""
    shipped = json.loads(
        run_kubectl("-n", NAMESPACE, "get", "configmap", CONFIG_MAP, "-o", "json").stdout
    )["data"][FILE]
    configuration = yaml.safe_load(shipped)
    for section, values in changes.items():
        configuration[section] = configuration.get(section, {}) | values
    restart_with(yaml.safe_dump(configuration))
    try:
        yield
    finally:
        restart_with(shipped)


def restart_with(configuration: str) -> None:
    """Restarts the manager; returns when its webhooks answer."""
    patch = json.dumps({"data": {FILE: configuration}})
    run_kubectl("-n", NAMESPACE, "patch", "configmap", CONFIG_MAP, "--type=merge", "-p", patch)
    run_kubectl("-n", NAMESPACE, "rollout", "restart", DEPLOYMENT)
    run_kubectl(
        "-n", NAMESPACE, "rollout", "status", DEPLOYMENT, f"--timeout={RESTART_SECONDS:.0f}s"
    )
    create = ("create", "--dry-run=server", "-f", str(PROBE))
    until(
        lambda: run_kubectl(*create, check=False).returncode == 0,
        lambda: f"Kueue's webhooks: {run_kubectl(*create, check=False).stderr}",
    )
