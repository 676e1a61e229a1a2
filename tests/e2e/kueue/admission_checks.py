"""Admission checks, for as long as a test needs them. Those of which the test is the controller are ready when it says so."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.e2e.job_under_test import run_kubectl
from tests.e2e.kueue.workloads import Workload, apply, condition, kueue_object
from tests.waiting import until

BY_HAND = "e2e.elasticpytorch.dev/by-hand"
CHECKS = "admissionchecks.v1beta2.kueue.x-k8s.io"


@contextmanager
def admission_check(name: str, controller: str = BY_HAND, parameters: dict[str, Any] | None = None) -> Iterator[None]:
    """An AdmissionCheck."""
    spec: dict[str, Any] = {"controllerName": controller}
    if parameters is not None:
        spec["parameters"] = {"apiGroup": "kueue.x-k8s.io", **parameters}
    apply(kueue_object("AdmissionCheck", {"name": name}, spec))
    try:
        if controller == BY_HAND:
            active = {"status": {"conditions": [condition("Active", "True", "Active")]}}
            run_kubectl("patch", CHECKS, name, "--subresource=status", "--type=merge", "-p", json.dumps(active))
        yield
    finally:
        run_kubectl("delete", CHECKS, name, "--wait=false")


def set_check(workload: Workload, check: str, state: str) -> None:
    """What a check's controller says of a Workload: `Ready`, or `Retry`, upon which Kueue evicts it."""
    until(lambda: bool(workload.status.get("admissionChecks")), "Kueue to ask for the check")
    (known,) = workload.status["admissionChecks"]
    assert known["name"] == check
    said = condition("", "", "")["lastTransitionTime"]
    workload.patch_status({"admissionChecks": [known | {"state": state, "message": "by hand", "lastTransitionTime": said}]})
