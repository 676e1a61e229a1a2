"""The client shows a job as the operator reads it: its own spec over that of its template."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from elastic_pytorch_client.reading import strategic_merge as of_the_client
from elastic_pytorch_client.reading.job_view import view_job
from elastic_pytorch_client.reading.whole_spec import whole_spec
from elastic_pytorch_operator.spec.platform import strategic_merge as of_the_operator

from tests.plugin.recorded_cluster import RecordedCluster, recorded

Epj = Callable[..., tuple[int, str]]
REF = {"name": "gpu"}
TEMPLATE = {"failurePolicy": {"maxFailures": 9, "backoffLimit": 20}, "rendezvous": {"backend": "operator"}}


def a_job(**changes: Any) -> dict[str, Any]:
    job: dict[str, Any] = json.loads(json.dumps(recorded("young")["job"]))
    job["spec"] |= {"templateRef": REF, "failurePolicy": {"maxFailures": 1}}
    job["status"]["template"] = {**REF, "generation": 4, "spec": TEMPLATE, **changes}
    return job


def test_both_packages_have_one_module() -> None:
    client, operator = (Path(module.__file__ or "") for module in (of_the_client, of_the_operator))
    assert client.read_text() == operator.read_text()


def test_view_has_the_values_of_the_template() -> None:
    job = view_job(a_job())
    assert (job.max_failures, job.backoff_limit) == (1, 20)


def test_template_that_the_job_does_not_name_any_more_is_none() -> None:
    job = a_job(name="other")
    assert whole_spec(job) == job["spec"]


def test_effective_spec_is_shown_with_the_template(epj: Epj) -> None:
    cluster = RecordedCluster("young")
    (name,) = cluster._jobs
    cluster._jobs[name] = a_job()
    code, text = epj(cluster, "status", name, "--effective")
    shown = yaml.safe_load(text)
    assert code == 0
    assert shown["template"] == {**REF, "generation": 4}
    assert shown["spec"]["failurePolicy"] == {"maxFailures": 1, "backoffLimit": 20}
    assert json.loads(epj(cluster, "status", name, "--effective", "-o", "json")[1]) == shown


def test_template_that_has_not_been_read_is_named(epj: Epj, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = RecordedCluster("young")
    (name,) = cluster._jobs
    cluster._jobs[name] = a_job(name="other")
    assert epj(cluster, "status", name, "--effective")[0] == 1
    assert "the operator has not read the template gpu yet" in capsys.readouterr().err


def test_job_without_a_template_is_its_own_spec(epj: Epj) -> None:
    cluster = RecordedCluster("young")
    (name,) = cluster._jobs
    shown = yaml.safe_load(epj(cluster, "status", name, "--effective")[1])
    assert shown["spec"] == cluster._jobs[name]["spec"]
    assert "template" not in shown
