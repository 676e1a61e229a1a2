"""Two releases share a cluster by namespaces: each trains its own jobs, and touches no other."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from elastic_pytorch_operator.api.names import OPERATOR_URL_VARIABLE
from measure.kind_cluster import OPERATOR_NAMESPACE

from tests.e2e.job_under_test import ENDLESS, JobUnderTest, StartJob, run_kubectl
from tests.e2e.release import CHART, NAME, helm, may, restored, upgrade

pytestmark = [pytest.mark.e2e, pytest.mark.serial, pytest.mark.long]

SECOND = "team-b-operator"


@pytest.fixture
def second_home(namespace: str) -> Iterator[str]:
    """A namespace for the second operator, as strict as that of the first."""
    name = f"{namespace}-system"
    run_kubectl("create", "namespace", name)
    run_kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    yield name
    run_kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def second_team(namespace: str) -> Iterator[str]:
    name = f"{namespace}-b"
    run_kubectl("create", "namespace", name)
    yield name
    run_kubectl("delete", "namespace", name, "--wait=false")


def install_second(home: str, watched: str, values: Path) -> str:
    """Installs the chart again, with the first release's settings; returns helm's refusal."""
    first: dict[str, Any] = json.loads(helm("get", "values", NAME, "--output=json"))
    own = {"fullnameOverride": SECOND, "watchNamespaces": [watched], "crds": {"enabled": False}}
    values.write_text(json.dumps(first | own))
    try:
        helm(
            "install",
            SECOND,
            str(CHART),
            f"--values={values}",
            "--wait",
            "--timeout=2m",
            namespace=home,
        )
    except AssertionError as error:
        return str(error)
    return ""


def operators_named(job: JobUnderTest) -> set[str]:
    """The hosts at which a job's agents look for the operator that has made their pods."""
    variables = [
        v for pod in job.pods() for c in pod["spec"]["containers"] for v in c.get("env", ())
    ]
    return {
        v["value"].partition("//")[2].partition(":")[0]
        for v in variables
        if v["name"] == OPERATOR_URL_VARIABLE
    }


def lose_a_worker(job: JobUnderTest) -> None:
    victim = job.members()[-1]
    uid = job.kubectl("get", "pod", victim, "-o", "jsonpath={.metadata.uid}")
    job.kubectl("delete", "pod", victim, "--grace-period=0", "--force")
    job.until(
        lambda status: (
            status.get("worldSize") == 2
            and uid not in [pod["metadata"]["uid"] for pod in job.pods()]
        ),
        "a replacement",
    )


def test_each_release_trains_the_jobs_of_its_own_namespaces(
    start_job: StartJob, namespace: str, second_home: str, second_team: str, tmp_path: Path
) -> None:
    with restored():
        try:
            upgrade(f'watchNamespaces=["{namespace}"]')
            first = start_job(args=ENDLESS, replicas=2)
            assert f"serves {namespace} already" in install_second(
                second_home, namespace, tmp_path / "overlapping.json"
            )
            refusal = install_second(second_home, second_team, tmp_path / "values.json")
            assert not refusal
            second = first.start_again_in(second_team)
            for job, host in (
                (first, f"{NAME}.{OPERATOR_NAMESPACE}.svc"),
                (second, f"{SECOND}.{second_home}.svc"),
            ):
                job.until_world(2)
                assert operators_named(job) == {host}
                lose_a_worker(job)
            account = f"system:serviceaccount:{second_home}:{SECOND}"
            assert not may("create", "pods", second_team)
            assert not may("create", "pods", namespace, account)
            assert may("create", "pods", second_team, account)
            helm("uninstall", SECOND, "--wait", "--timeout=2m", namespace=second_home)
            second.kubectl("scale", f"epj/{second.name}", "--replicas=3")
            first.kubectl("scale", f"epj/{first.name}", "--replicas=3")
            first.until_world(3)
            assert len(second.pods()) == 2, (
                "the first operator leaves the jobs of a release that is gone alone"
            )
        finally:  # the first release is refused all namespaces while there is a second one
            helm(
                "uninstall",
                SECOND,
                "--ignore-not-found",
                "--wait",
                "--timeout=2m",
                namespace=second_home,
            )
