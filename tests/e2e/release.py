"""The installed release of the chart, and what tests do to it; `restore` undoes all of that."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from measure.kind_cluster import OPERATOR_NAMESPACE

from tests.e2e.api_requests import KUBECONFIG
from tests.e2e.job_under_test import run_kubectl
from tests.paths import ROOT

NAME = "elastic-pytorch-operator"
CHART = ROOT / "charts" / NAME
ACCOUNT = f"system:serviceaccount:{OPERATOR_NAMESPACE}:{NAME}"


def helm(*arguments: str, namespace: str = OPERATOR_NAMESPACE) -> str:
    command = [
        str(ROOT / ".cluster" / "bin" / "helm"),
        *arguments,
        f"--kubeconfig={KUBECONFIG}",
        f"--namespace={namespace}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, f"helm {' '.join(arguments)} failed: {done.stderr}{done.stdout}"
    return done.stdout


def upgrade(*values: str) -> None:
    """Upgrades the release with further values, as `logLevel=DEBUG`; waits until it stands."""
    options = [option for value in values for option in ("--set-json", value)]
    helm("upgrade", NAME, str(CHART), "--reuse-values", "--wait", "--timeout=2m", *options)


def uninstall() -> None:
    helm("uninstall", NAME, "--wait", "--timeout=2m")


def remove_release() -> None:
    """Removes the release, and the Secret that it leaves."""
    helm("uninstall", NAME, "--ignore-not-found", "--wait", "--timeout=2m")
    run_kubectl("-n", OPERATOR_NAMESPACE, "delete", f"secret/{NAME}-tls", "--ignore-not-found")


def restore() -> None:
    """The release as `make install` leaves it."""
    script = ROOT / "hack" / "install.sh"
    done = subprocess.run([script], capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def restored() -> Iterator[None]:
    """Whatever is done to the release meanwhile, it is as before in the end."""
    try:
        yield
    finally:
        restore()


def may(verb: str, resource: str, namespace: str, account: str = ACCOUNT) -> bool:
    """Whether an operator, usually that of `make install`, may do something in a namespace."""
    return (
        run_kubectl(
            "auth", "can-i", verb, resource, f"--as={account}", "-n", namespace, check=False
        ).stdout.strip()
        == "yes"
    )


def operators() -> set[str]:
    found = run_kubectl(
        "-n",
        OPERATOR_NAMESPACE,
        "get",
        "pods",
        "-l",
        f"app.kubernetes.io/name={NAME}",
        "-o",
        "json",
    ).stdout
    return {
        pod["metadata"]["name"]
        for pod in json.loads(found)["items"]
        if "deletionTimestamp" not in pod["metadata"]
    }


def roles_of_the_release() -> list[dict[str, Any]]:
    """The roles that the cluster binds to the operator: the chart's, and Kubernetes' own."""
    mine = "-l", f"app.kubernetes.io/instance={NAME}"
    bindings = json.loads(
        run_kubectl("get", "clusterrolebindings,rolebindings", "-A", *mine, "-o", "json").stdout
    )["items"]
    bound = {
        (found["roleRef"]["kind"], found["metadata"].get("namespace", ""), found["roleRef"]["name"])
        for found in bindings
    }
    roles = json.loads(run_kubectl("get", "clusterroles,roles", "-A", "-o", "json").stdout)["items"]
    return [
        role
        for role in roles
        if (role["kind"], role["metadata"].get("namespace", ""), role["metadata"]["name"]) in bound
    ]
