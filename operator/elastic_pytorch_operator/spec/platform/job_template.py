"""`spec.templateRef`: the template that a job's own spec is merged over. Pure.

The operator keeps the spec of the template, as it was read, in `status.template`. So a job is what its own manifest says, and a changed
template concerns no job that runs. It is read again only when the job is resumed.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import find_condition, has_ended, is_true
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.job_size import check_size, size_of
from elastic_pytorch_operator.spec.platform.strategic_merge import APPENDED, merge
from elastic_pytorch_operator.spec.pod_template import MAX_TOLERATIONS

PATH = "spec.templateRef"
CONTAINERS = "spec.template.spec.containers"
FIELD = "template"  # of the status
MAX_BYTES = 32_768  # of a template's spec: each version of a job's status stores it
# A job's own alone: the API server checks a change of scale by them, and claims outlive each reading of a template.
NOT_OF_TEMPLATES = (
    *("replicas", "minReplicas", "maxReplicas", "spares", "suspend", "managedBy", "templateRef"),
    *("sharedVolumeClaims", "sharedVolumeClaimRetentionPolicy"),
)


class TemplateUnread(InvalidJob):
    """A job whose template is to be read before it is known what the job is.

    Attributes:
        name: of the template.
    """

    def __init__(self, name: str) -> None:
        super().__init__(PATH, f"{titled(name)} has not been read yet")
        self.name = name


def titled(name: str) -> str:
    """A template's kind and name, for messages."""
    return f"{names.TEMPLATE_KIND} {name}"


def read_template_name(spec: Manifest) -> str | None:
    """Which template a job names; None: none.

    Raises:
        InvalidJob: it is no reference.
    """
    found = spec.get("templateRef")
    if found is None:
        return None
    if not isinstance(found, Mapping) or not isinstance(found.get("name"), str) or not found["name"]:
        raise InvalidJob(PATH, "must be an object with the name of a template")
    return found["name"]  # type: ignore[no-any-return]


def whole_spec(manifest: Manifest, name: str | None) -> Manifest:
    """A job's spec over that of its template.

    Args:
        manifest: of the job, with its status.
        name: of the template; None: it has none.

    Raises:
        TemplateUnread: the template is to be read first.
        InvalidJob: the two cannot be merged.
    """
    spec = manifest["spec"]
    if name is None:
        return spec  # type: ignore[no-any-return]
    kept = kept_template(manifest)
    if kept is None or kept.get("name") != name or resumes(manifest):
        raise TemplateUnread(name)
    return over(kept["spec"], spec)


def over(template: Manifest, spec: Manifest) -> Manifest:
    """A job's own spec over that of a template.

    Raises:
        InvalidJob: they cannot be merged.
    """
    _check_training_container(spec)
    for path in APPENDED:  # each item of the one is compared with each of the other
        for part in (template, spec):
            _check_count(part, path)
    merged = merge(template, spec)
    check_size(merged, "spec")
    return merged


def kept_template(manifest: Manifest) -> Manifest | None:
    """The template that a job's status keeps; None: none."""
    found = (manifest.get("status") or {}).get(FIELD)
    return found if isinstance(found, Mapping) and isinstance(found.get("spec"), Mapping) else None


def resumes(manifest: Manifest) -> bool:
    """Whether a job without pods is to run again, and its template has not been read for that.

    It is no longer to be suspended, and its condition says that it still is, for another reason than that it resumes.
    """
    status = manifest.get("status") or {}
    if manifest["spec"].get("suspend") is True or not is_true(status, names.SUSPENDED) or has_ended(status):
        return False
    return (find_condition(status, names.SUSPENDED) or {}).get("reason") != names.JOB_RESUMED


def keep(template: Manifest) -> dict[str, Any]:
    """What a job's status keeps of a template.

    Raises:
        InvalidJob: no job can use it.
    """
    metadata, spec = template["metadata"], template.get("spec") or {}
    title = titled(metadata["name"])
    if not isinstance(spec, Mapping):
        raise InvalidJob(PATH, f"the spec of {title} must be an object")
    if found := [name for name in NOT_OF_TEMPLATES if spec.get(name) is not None]:
        raise InvalidJob(PATH, f"{title} must not have spec.{found[0]}, which is each job's own")
    check_size(spec, "spec")
    if (size := size_of(spec)) > MAX_BYTES:
        raise InvalidJob(PATH, f"the spec of {title} must have at most {MAX_BYTES} bytes as JSON, not {size}")
    return {"name": metadata["name"], "generation": metadata.get("generation", 1), "spec": spec}


@contextmanager
def naming(name: str | None) -> Iterator[None]:
    """Adds the name of the template to what is wrong with a job that has one."""
    try:
        yield
    except TemplateUnread:
        raise
    except InvalidJob as problem:
        if name is not None:
            problem.args = (f"{problem} (with {titled(name)})",)
        raise


def _check_count(spec: Manifest, path: str) -> None:
    found: Any = spec
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    if isinstance(found, list) and len(found) > MAX_TOLERATIONS:
        raise InvalidJob(f"spec.{path}", f"must have at most {MAX_TOLERATIONS} entries")


def _check_training_container(spec: Manifest) -> None:
    """Refuses a container of another name: it would stand beside the template's, which would train in its place."""
    pod = (spec.get("template") or {}).get("spec") or {}
    containers = pod.get("containers") or ()
    if containers and not any(isinstance(c, Mapping) and c.get("name") == names.TRAINING_CONTAINER for c in containers):
        must = f"must contain one that is named {names.TRAINING_CONTAINER} if templateRef is set"
        raise InvalidJob(CONTAINERS, f"{must}: it is merged with that of the template")
