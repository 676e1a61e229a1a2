"""`spec.templateRef`: the template under a job's own spec. Pure.

A job takes the template when it is new or resumed. Its status keeps the template's name and UID,
and a ControllerRevision the spec, which any leader reads again.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import find_condition, has_ended, is_true
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.job_size import check_size
from elastic_pytorch_operator.spec.platform.strategic_merge import APPENDED, merge
from elastic_pytorch_operator.spec.pod_template import MAX_TOLERATIONS
from elastic_pytorch_operator.spec.schema.rules import at

PATH = "spec.templateRef"
FIELD = "template"  # of the status
# Each job's own: the API server checks a change of scale by them, scripts are written for a
# rendezvous, and claims outlive each reading of a template.
NOT_OF_TEMPLATES = (
    *("replicas", "minReplicas", "maxReplicas", "unitReplicas", "spares", "suspend", "managedBy"),
    *("templateRef", "rendezvous", "sharedVolumeClaims", "sharedVolumeClaimRetentionPolicy"),
)
# By UID, the specs of templates that have been read.
Templates = Mapping[str, Manifest]
NONE_READ: Templates = {}


class TemplateUnread(InvalidJob):
    """A job whose template is to be read first; without a UID, it takes the name's template now."""

    def __init__(self, name: str, uid: str | None) -> None:
        super().__init__(PATH, f"{titled(name)} has not been read yet")
        self.name = name
        self.template_uid = uid


def titled(name: str) -> str:
    return f"{names.TEMPLATE_KIND} {name}"


def read_template_name(spec: Manifest) -> str | None:
    """The template that a job names, if any; InvalidJob: it is no reference."""
    found = spec.get("templateRef")
    if found is None:
        return None
    if (
        not isinstance(found, Mapping)
        or not isinstance(found.get("name"), str)
        or not found["name"]
    ):
        raise InvalidJob(PATH, "must be an object with the name of a template")
    return found["name"]  # type: ignore[no-any-return]


def whole_spec(manifest: Manifest, name: str | None, templates: Templates) -> Manifest:
    """A job's spec, over its template if it names one: InvalidJob, or TemplateUnread."""
    spec = manifest["spec"]
    if name is None:
        return spec  # type: ignore[no-any-return]
    uid = template_uid(manifest)
    kept = templates.get(uid) if uid is not None else None
    if kept is None:
        raise TemplateUnread(name, uid)
    return over(kept, spec)


def over(template: Manifest, spec: Manifest) -> Manifest:
    for path in APPENDED:  # each item of the one is compared with each of the other
        for part in (template, spec):
            found = at(part, path)
            if isinstance(found, list) and len(found) > MAX_TOLERATIONS:
                raise InvalidJob(f"spec.{path}", f"must have at most {MAX_TOLERATIONS} entries")
    merged = merge(template, spec)
    check_size(merged, "spec")
    return merged


def template_uid(manifest: Manifest) -> str | None:
    """None: a job has no template yet, names another one, or resumes."""
    kept = (manifest.get("status") or {}).get(FIELD)
    named = (manifest.get("spec") or {}).get("templateRef")
    if not isinstance(kept, Mapping) or not isinstance(named, Mapping) or resumes(manifest):
        return None
    uid = kept.get("uid")
    return uid if isinstance(uid, str) and kept.get("name") == named.get("name") else None


def resumes(manifest: Manifest) -> bool:
    """Whether a job is no longer suspended, but has not yet taken its template again."""
    status = manifest.get("status") or {}
    if (
        manifest["spec"].get("suspend") is True
        or not is_true(status, names.SUSPENDED)
        or has_ended(status)
    ):
        return False
    return find_condition(status, names.SUSPENDED).get("reason") != names.JOB_RESUMED


def usable_spec(template: Manifest) -> Manifest:
    spec, title = template.get("spec") or {}, titled(template["metadata"]["name"])
    if not isinstance(spec, Mapping):
        raise InvalidJob(PATH, f"the spec of {title} must be an object")
    if found := [name for name in NOT_OF_TEMPLATES if spec.get(name) is not None]:
        raise InvalidJob(PATH, f"{title} must not have spec.{found[0]}, which is each job's own")
    check_size(spec, "spec")
    return spec


@contextmanager
def naming(name: str | None) -> Iterator[None]:
    try:
        yield
    except TemplateUnread:
        raise
    except InvalidJob as problem:
        if name is not None:
            problem.args = (f"{problem} (with {titled(name)})",)
        raise
