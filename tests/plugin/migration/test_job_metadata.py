"""Which controller reconciles a migrated job: one that knows jobs of this kind."""

import pytest
from elastic_pytorch_client.migration.job_metadata import migrate_manager
from elastic_pytorch_client.migration.remarks import Remarks

OWN = "kubeflow.org/training-operator"


@pytest.mark.parametrize(
    ("manager", "kept", "said"),
    [
        (None, {}, ""),
        ("", {}, ""),
        (OWN, {}, ""),
        ("kueue.x-k8s.io/multikueue", {"managedBy": "kueue.x-k8s.io/multikueue"}, "stays: list this kind of job"),
        ("example.com/other", {}, "example.com/other is dropped"),
    ],
)
def test_only_multikueue_stays_the_manager_of_a_job(manager: str | None, kept: dict[str, str], said: str) -> None:
    remarks = Remarks()
    assert migrate_manager("spec.managedBy", manager, OWN, remarks) == kept
    assert len(remarks.found) == bool(said)
    assert all(remark.text.startswith(said) for remark in remarks.found)
