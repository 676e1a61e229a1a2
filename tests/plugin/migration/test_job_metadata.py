"""Which controller reconciles a migrated job: one that knows jobs of this kind."""

import pytest
from elastic_pytorch_client.migration.job_metadata import drop_manager
from elastic_pytorch_client.migration.remarks import Remarks

OWN = "kubeflow.org/training-operator"


@pytest.mark.parametrize(
    ("manager", "said"),
    [
        (None, []),
        ("", []),
        (OWN, []),
        ("kueue.x-k8s.io/multikueue", ["kueue.x-k8s.io/multikueue is dropped"]),
        ("example.com/other", ["example.com/other is dropped"]),
    ],
)
def test_a_manager_that_does_not_know_the_new_job_is_named(
    manager: str | None, said: list[str]
) -> None:
    remarks = Remarks()
    drop_manager("spec.managedBy", manager, OWN, remarks)
    assert [remark.text.partition(":")[0] for remark in remarks.found] == said
