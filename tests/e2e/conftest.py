"""A namespace for each test, jobs in it, and on failure what is needed to understand it."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from measure.kind_cluster import OPERATOR_NAMESPACE, read_example, report
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.e2e.job_under_test import JobUnderTest, StartJob, run_kubectl
from tests.paths import ROOT

SETTLE_SECONDS = 30
BEGAN = pytest.StashKey[str]()
# Some of their tests cordon a node, and others need the room of each node.
CORDONS = ("/test_faults.py", "/test_lifecycle.py")
# Their tests take minutes: begun last, they would run on alone.
BEGUN_FIRST = ("test_plugin.py", "test_docs_commands.py", "test_lifecycle.py")

open_namespaces: list[str] = []  # of the tests of this process


class ModulesSideBySide(LoadFileScheduling):
    """Tests of a module, and of some modules, run one after the other: they share a job."""

    def _split_scope(self, nodeid: str) -> str:
        module = str(super()._split_scope(nodeid))
        return "cordons" if module.endswith(CORDONS) else module


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ModulesSideBySide | None:
    return ModulesSideBySide(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins with the modules that take longest."""
    items.sort(key=lambda item: item.path.name not in BEGUN_FIRST)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remembers since when the operators' logs tell of a test."""
    item.stash[BEGAN] = datetime.now(UTC).isoformat()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keeps the story of a test that fails while its namespaces are still there."""
    told = yield
    if told.failed:
        test = re.sub(r"[^\w.-]+", "-", f"{item.path.stem}-{item.name}")[:120]
        for namespace in open_namespaces or [OPERATOR_NAMESPACE]:
            text = report(namespace, f"{test}-{told.when}/{namespace}", item.stash.get(BEGAN, ""))
            told.sections.append((namespace, text))
    return told


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> Iterator[str]:
    yield from made_namespace(request.node.name.split("[")[0])


@pytest.fixture
def template(namespace: str) -> Iterator[str]:
    """The example for CPUs, under a name of its own."""
    manifest = yaml.safe_load((ROOT / "examples" / "templates" / "cpu.yaml").read_text())
    manifest["metadata"]["name"] = namespace
    run_kubectl("apply", "-f", "-", input=json.dumps(manifest))
    yield namespace
    run_kubectl("delete", "cepjt", namespace, "--ignore-not-found")


@pytest.fixture(scope="module")
def shared_namespace(request: pytest.FixtureRequest) -> Iterator[str]:
    yield from made_namespace(request.module.__name__.rpartition(".")[2])


def made_namespace(what: str) -> Iterator[str]:
    name = f"e2e-{what.removeprefix('test_').replace('_', '-')[:40]}-{os.urandom(2).hex()}"
    run_kubectl("create", "namespace", name)
    open_namespaces.append(name)
    yield name
    open_namespaces.remove(name)
    run_kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def kubectl(namespace: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    return lambda *arguments, **options: run_kubectl("-n", namespace, *arguments, **options)


@pytest.fixture
def start_job(namespace: str) -> StartJob:
    return starter(namespace)


@pytest.fixture(scope="module")
def start_shared_job(shared_namespace: str) -> StartJob:
    return starter(shared_namespace)


def starter(namespace: str) -> StartJob:
    """What applies an example with changes, another script or other pods, and returns the job."""

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
        # On a busy machine one pod may start seconds after the others: the first round is to have
        # them all nonetheless.
        manifest["spec"].setdefault("resizePolicy", {}).setdefault("settleSeconds", SETTLE_SECONDS)
        run_kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(manifest))
        return JobUnderTest(manifest["metadata"]["name"], namespace)

    return start


def mount_script(namespace: str, pod: dict[str, Any], script: str) -> None:
    """Puts a script into a ConfigMap, and that into the training container at /scripts/train.py."""
    files = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "scripts"},
        "data": {"train.py": script},
    }
    run_kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(files))
    pod["volumes"].append({"name": "scripts", "configMap": {"name": "scripts"}})
    pod["containers"][0]["volumeMounts"].append({"name": "scripts", "mountPath": "/scripts"})
