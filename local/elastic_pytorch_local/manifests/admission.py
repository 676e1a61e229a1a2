"""What the API server and the operator would say of a job's manifest, in the same order."""

import re
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.job import Job, parse_job, training_container
from elastic_pytorch_operator.spec.job_size import check_size

from elastic_pytorch_local.manifests.job_schema import check_schema, job_schema
from elastic_pytorch_local.manifests.kubernetes_models import check_model

# The rules of the CRD in CEL that `parse_job` does not know: it sees jobs that the API server has admitted.
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_OWN_PREFIX = f"{names.GROUP}/"
_OWN_LABEL = "app.kubernetes.io/managed-by"
_GROUP_OPTIONS = ("--nnodes", "--node-rank", "--node_rank", "--standalone", "--rdzv-", "--rdzv_", "--master-", "--master_")
_GROUP_FIELDS = "spec.replicas, spec.minReplicas, spec.maxReplicas and spec.rendezvous"


def admit(manifest: dict[str, Any]) -> Job:
    """Reads a job as a cluster would.

    Raises:
        InvalidJob: a field is unknown, of the wrong type or out of bounds; it names the first such field and the fix.
    """
    check_size(manifest, "the job")
    check_model(manifest["metadata"], "V1ObjectMeta", "metadata")
    check_schema(manifest, job_schema())
    spec = manifest["spec"]
    if spec.get("template") is None:
        raise InvalidJob("spec.template", "is missing: it describes the worker pods")
    check_model(spec["template"], "V1PodTemplateSpec", "spec.template")
    for number, claim in enumerate(spec.get("sharedVolumeClaims") or ()):
        check_model(claim["spec"], "V1PersistentVolumeClaimSpec", f"spec.sharedVolumeClaims[{number}].spec")
    _check_rules(manifest["metadata"], spec["template"])
    return parse_job(manifest)


def _check_rules(metadata: Mapping[str, Any], template: Mapping[str, Any]) -> None:
    if not _NAME.fullmatch(metadata["name"]):
        problem = (
            "must start with a lowercase letter, end with a letter or digit, and contain only lowercase letters, digits and '-'"
        )
        raise InvalidJob("metadata.name", problem)
    about = template.get("metadata") or {}
    for field in ("labels", "annotations"):
        for key in about.get(field) or ():
            if key.startswith(_OWN_PREFIX) or (field == "labels" and key == _OWN_LABEL):
                raise InvalidJob(
                    f"spec.template.metadata.{field}", f"must not contain {key}, which the operator writes: remove it"
                )
    container = training_container(template)
    if not container.get("command"):
        _check_options(container.get("args") or ())


def _check_options(args: Iterable[str]) -> None:
    for option in takewhile(lambda word: word.startswith("-"), args):
        if option.startswith(_GROUP_OPTIONS):
            raise InvalidJob("spec.template.spec.containers", f"must not contain {option} in `args`: use {_GROUP_FIELDS}")
