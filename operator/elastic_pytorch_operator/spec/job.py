"""An ElasticPyTorchJob as the operator reads it: checked once, with the API's defaults.

The schema of `crds/` is applied again: local mode has no API server, and a job may be older than a
rule.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.spec.failure_rules import FailureRule, PodCondition, parse_rules
from elastic_pytorch_operator.spec.fields import InvalidJob, reading_spec
from elastic_pytorch_operator.spec.job_size import check_size
from elastic_pytorch_operator.spec.platform.job_defaults import API_DEFAULTS, JobDefaults
from elastic_pytorch_operator.spec.platform.job_template import (
    NONE_READ,
    Templates,
    naming,
    read_template_name,
    template_uid,
    whole_spec,
)
from elastic_pytorch_operator.spec.pod_template import check_template, with_tolerations
from elastic_pytorch_operator.spec.queue import Queue, read_queue
from elastic_pytorch_operator.spec.resources import processes_per_node
from elastic_pytorch_operator.spec.scheduling import NO_SCHEDULING, Scheduling, read_scheduling
from elastic_pytorch_operator.spec.schema.validator import check_job
from elastic_pytorch_operator.spec.sizes import largest_allowed, read_sizes
from elastic_pytorch_operator.spec.volumes import DELETE, ClaimTemplate

T = TypeVar("T")

REPLACE, FAIL_JOB = "Replace", "FailJob"  # failurePolicy.onPodLoss
DEFAULT_GRACE_SECONDS = 30  # Kubernetes' default of terminationGracePeriodSeconds

SAVE_DEADLINE_SECONDS, PREPARE_SECONDS = 3600, 1800
MAX_FAILURES, SETTLE_SECONDS, STORE_PORT = 3, 1.0, 29500


class JobKey(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Job:
    key: JobKey
    uid: str
    generation: int
    wanted: int  # how many workers to aim at; 0 while it is suspended
    minimum: int  # the fewest workers that train; of a job of a fixed size, all
    maximum: int
    requested: int = 0  # `spec.replicas`, before `allowedReplicas` have rounded it down
    allowed: tuple[int, ...] = ()  # the sizes that a group may have, rising; none: any
    spares: int = 0
    unit_replicas: int = 1  # workers of consecutive indexes, which are in a group all or not at all
    suspend: bool = False
    managed_by: str = ""
    nproc_per_node: str = "1"
    max_failures: int = MAX_FAILURES
    backoff_limit: int | None = None
    on_pod_loss: str = REPLACE
    rules: tuple[FailureRule, ...] = ()
    progress_deadline_seconds: int | None = None
    save_deadline_seconds: int = SAVE_DEADLINE_SECONDS  # for the last checkpoint after training
    active_deadline_seconds: int | None = None
    ttl_seconds: int | None = None
    settle_seconds: float = SETTLE_SECONDS
    growth_seconds: float = 0.0  # between two rounds that make the group larger
    checkpoint_wait_seconds: float = 0.0  # of a planned change
    checkpoint_path: str = ""  # the folder that agents watch for checkpoints; empty: none
    backend: str = names.BACKEND_OPERATOR  # or stock torchrun's c10d or etcd-v2
    store_port: int = STORE_PORT
    endpoint: str = ""  # of the user's etcd, `host:port`
    prepare_seconds: int = 0  # for scripts before their group exists; 0: they start when it does
    shared_memory: str = ""  # `spec.sharedMemorySize`; empty: unset
    claims: tuple[ClaimTemplate, ...] = ()
    keep_claims: bool = True
    scheduling: Scheduling = NO_SCHEDULING
    clean_pod_policy: str = "Running"
    inject_agent: bool = True
    template: Manifest = field(default_factory=dict)
    status: Manifest = field(default_factory=dict)
    deleting: bool = False
    queue: Queue | None = None  # where it waits for quota; None: it starts without
    version: str = ""  # the manifest's resourceVersion
    template_uid: str | None = None  # of the template under its spec; None: its spec is whole
    problem: str = ""  # what is wrong with its present spec; see `stored_job`
    # For the status to keep; None: the present spec is valid, or no valid one is known.
    last_valid: Manifest | None = None

    @property
    def ours(self) -> bool:
        return self.managed_by in ("", names.MANAGER)

    @property
    def stock(self) -> bool:
        """Whether stock torchrun forms the group, so that the operator sees only pods."""
        return self.backend != names.BACKEND_OPERATOR

    @property
    def rounded_by(self) -> str:
        """The field below `spec` by which fewer workers are wanted than are requested."""
        uneven = self.requested % self.unit_replicas
        return "unitReplicas" if uneven else "resizePolicy.allowedReplicas"

    def is_extra(self, index: int) -> bool:
        return self.scheduling.extra_workers is not None and index >= self.minimum

    @property
    def extras_choose_flavors(self) -> bool:
        """Whether Kueue's Workloads beyond the minimum, one a pod, may have other flavors."""
        extra = self.scheduling.extra_workers
        return extra is not None and bool(extra.node_selector or extra.tolerations)

    def quota_for(self, *, extra: bool) -> str:
        """What a Workload is for: quota for one text does not serve another."""
        workers = self.scheduling.extra_workers
        template = self.queue.template if self.queue is not None else ""
        return template + (workers.text if extra and workers is not None else "")

    def template_of(self, *, extra: bool) -> Manifest:
        """A worker's pod template; `extra`: it runs by quota beyond the minimum."""
        workers = self.scheduling.extra_workers
        if workers is None or not extra:
            return self.template
        return workers.applied_to(self.template)

    @property
    def pod_conditions(self) -> frozenset[PodCondition]:
        return frozenset().union(*(rule.conditions for rule in self.rules))

    @property
    def grace_seconds(self) -> int:
        seconds = self.template.get("spec", {}).get("terminationGracePeriodSeconds")
        return DEFAULT_GRACE_SECONDS if seconds is None else int(seconds)


def training_container(template: Manifest) -> Manifest:
    """The container that trains, of a template that the schema admits."""
    containers: list[Manifest] = template.get("spec", {}).get("containers") or []
    for container in containers:
        if len(containers) == 1 or container["name"] == names.TRAINING_CONTAINER:
            return container
    raise InvalidJob("spec.template.spec.containers", "needs a container")


def parse_key(manifest: Manifest) -> JobKey:
    metadata = manifest["metadata"]
    return JobKey(metadata.get("namespace", "default"), metadata["name"])


@reading_spec()
def parse_job(
    manifest: Manifest, defaults: JobDefaults = API_DEFAULTS, templates: Templates = NONE_READ
) -> Job:
    """Reads a job's manifest, over its template: InvalidJob, or TemplateUnread to begin with."""
    spec = manifest.get("spec")
    if not isinstance(spec, Mapping):
        raise InvalidJob("spec", "is missing")
    check_size(spec, "spec")
    name = read_template_name(spec)
    with naming(name):
        whole = whole_spec(manifest, name, templates)
    if name is not None:
        check_job(manifest)
    with naming(name):
        return parse_whole(manifest, whole, defaults)


@reading_spec()
def parse_whole(manifest: Manifest, spec: Manifest, defaults: JobDefaults) -> Job:
    check_job({**manifest, "spec": spec})
    metadata, template = manifest["metadata"], spec["template"]
    check_template(template)
    container = training_container(template)
    suspend, prepare = spec.get("suspend") is True, spec.get("prepare")
    failures, resizing = spec.get("failurePolicy") or {}, spec.get("resizePolicy") or {}
    rendezvous, claims = spec.get("rendezvous") or {}, spec.get("sharedVolumeClaims") or ()
    shared_memory = spec.get("sharedMemorySize")
    backend = rendezvous.get("backend") or names.BACKEND_OPERATOR
    requested, stock = spec["replicas"], backend != names.BACKEND_OPERATOR
    minimum, maximum, allowed = read_sizes(spec, stock=stock)
    queue = read_queue(metadata, template)
    return Job(
        key=parse_key(manifest),
        uid=metadata.get("uid", ""),
        generation=int(metadata.get("generation", 1)),
        wanted=0 if suspend else largest_allowed(requested, allowed),
        minimum=minimum,
        maximum=maximum,
        requested=requested,
        allowed=allowed,
        spares=spec.get("spares") or 0,
        unit_replicas=spec.get("unitReplicas") or 1,
        suspend=suspend,
        managed_by=spec.get("managedBy") or "",
        nproc_per_node=processes_per_node(spec.get("nprocPerNode"), container),
        max_failures=_given(failures.get("maxFailures"), MAX_FAILURES),
        backoff_limit=failures.get("backoffLimit"),
        rules=parse_rules(failures.get("rules") or ()),
        on_pod_loss=failures.get("onPodLoss") or REPLACE,
        progress_deadline_seconds=spec.get("progressDeadlineSeconds"),
        save_deadline_seconds=spec.get("saveDeadlineSeconds") or SAVE_DEADLINE_SECONDS,
        active_deadline_seconds=spec.get("activeDeadlineSeconds"),
        ttl_seconds=_given(spec.get("ttlSecondsAfterFinished"), defaults.ttl_seconds),
        settle_seconds=float(_given(resizing.get("settleSeconds"), SETTLE_SECONDS)),
        growth_seconds=float(resizing.get("minSecondsBetweenGrowths") or 0),
        checkpoint_wait_seconds=float(resizing.get("checkpointWaitSeconds") or 0),
        checkpoint_path=resizing.get("checkpointPath") or "",
        backend=backend,
        store_port=rendezvous.get("port") or STORE_PORT,
        endpoint=rendezvous.get("endpoint") or "",
        prepare_seconds=0 if prepare is None else prepare.get("timeoutSeconds") or PREPARE_SECONDS,
        shared_memory="" if shared_memory is None else str(shared_memory),
        claims=tuple(ClaimTemplate(claim["metadata"]["name"], claim["spec"]) for claim in claims),
        keep_claims=(spec.get("sharedVolumeClaimRetentionPolicy") or {}).get("whenDeleted")
        != DELETE,
        scheduling=read_scheduling(spec, queued=queue is not None),
        clean_pod_policy=spec.get("cleanPodPolicy") or defaults.clean_pod_policy,
        inject_agent=spec.get("injectAgent") is not False,
        template=with_tolerations(template, defaults.tolerations),
        status=manifest.get("status") or {},
        deleting=bool(metadata.get("deletionTimestamp")),
        queue=queue,
        version=str(metadata.get("resourceVersion", "")),
        template_uid=template_uid(manifest),
    )


def _given(value: T | None, default: T) -> T:
    return default if value is None else value
