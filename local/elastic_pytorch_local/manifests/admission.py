"""What the API server and the operator would say of a job's manifest, in the same order."""

from typing import Any

from elastic_pytorch_operator.spec.job import Job, parse_job
from elastic_pytorch_operator.spec.job_size import check_size
from elastic_pytorch_operator.spec.schema.validator import check_job

from elastic_pytorch_local.manifests.kubernetes_models import check_model


def check_migrated(manifest: dict[str, Any]) -> None:
    """Checks a job that no API server has named yet, for `kubectl epj migrate`.

    Raises:
        InvalidJob: as `admit`.
    """
    admit({**manifest, "metadata": {"name": "unnamed", "namespace": "default", "uid": "none"} | manifest["metadata"]})


def admit(manifest: dict[str, Any]) -> Job:
    """Reads a job as a cluster would.

    Raises:
        InvalidJob: a field is unknown, of the wrong type or out of bounds; it names the first such field and the fix.
    """
    check_size(manifest, "the job")
    check_model(manifest["metadata"], "V1ObjectMeta", "metadata")
    check_job(manifest, strict=True)
    spec = manifest["spec"]
    check_model(spec["template"], "V1PodTemplateSpec", "spec.template")
    for number, claim in enumerate(spec.get("sharedVolumeClaims") or ()):
        check_model(claim["spec"], "V1PersistentVolumeClaimSpec", f"spec.sharedVolumeClaims[{number}].spec")
    return parse_job(manifest)
