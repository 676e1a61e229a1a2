"""A namespace for each test, kubectl in it, and on failure what is needed to understand it."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from measure.kind_cluster import report

from tests.e2e.job_under_test import JobUnderTest, StartJob, read_example, run_kubectl
from tests.paths import ROOT

SETTLE_SECONDS = 30


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own, removed after it; its story is kept if the test has failed."""
    yield from made_namespace(request.session, request.node.name.split("[")[0])


@pytest.fixture(scope="module")
def shared_namespace(request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for the tests of a module that leave nothing behind, removed after the last one."""
    yield from made_namespace(request.session, request.module.__name__.rpartition(".")[2])


def made_namespace(session: pytest.Session, what: str) -> Iterator[str]:
    """Creates a namespace named after a test or a module; deletes it, and keeps its story if a test has failed meanwhile."""
    name = f"e2e-{what.removeprefix('test_').replace('_', '-')[:40]}-{os.urandom(2).hex()}"
    run_kubectl("create", "namespace", name)
    failed_before = session.testsfailed
    yield name
    if session.testsfailed > failed_before:
        report(name)
    run_kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def kubectl(namespace: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Kubectl in the test's namespace."""
    return lambda *arguments, **options: run_kubectl("-n", namespace, *arguments, **options)


@pytest.fixture
def start_job(namespace: str) -> StartJob:
    """Applies an example with changes, perhaps with another script in its place or other pods; returns the job."""

    def start(
        example: str = "all-reduce",
        *,
        name: str = "",
        file: str = "job.yaml",
        args: list[str] | None = None,
        resources: dict[str, Any] | None = None,
        script: str | None = None,
        change_pod: Callable[[dict[str, Any]], None] | None = None,
        **spec: Any,
    ) -> JobUnderTest:
        manifest = read_example(ROOT / "examples" / example / file)
        container = manifest["spec"]["template"]["spec"]["containers"][0]
        if script is not None:
            mount_script(namespace, manifest["spec"]["template"]["spec"], script)
            container["args"] = ["/scripts/train.py"]
        if args is not None:
            container["args"] = args
        if resources is not None:
            container["resources"] = resources
        if change_pod is not None:
            change_pod(manifest["spec"]["template"]["spec"])
        manifest["metadata"]["name"] = name or manifest["metadata"]["name"]
        manifest["spec"] |= spec
        # On a busy machine one pod may start seconds after the others: the first round is to have them all nonetheless.
        manifest["spec"].setdefault("resizePolicy", {}).setdefault("settleSeconds", SETTLE_SECONDS)
        run_kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(manifest))
        return JobUnderTest(manifest["metadata"]["name"], namespace)

    return start


def mount_script(namespace: str, pod: dict[str, Any], script: str) -> None:
    """Puts a training script into a ConfigMap, and that into a pod's training container at /scripts/train.py."""
    files = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "scripts"}, "data": {"train.py": script}}
    run_kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(files))
    pod["volumes"].append({"name": "scripts", "configMap": {"name": "scripts"}})
    pod["containers"][0]["volumeMounts"].append({"name": "scripts", "mountPath": "/scripts"})
