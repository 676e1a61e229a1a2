"""An ElasticPyTorchJob as the operator reads it: parsed once, checked, with the API's defaults filled in.

The API server has already applied the schema of `crds/`. It is applied again here, as local mode
has no API server, and as a job may be older than a rule: it is refused with the field's name rather
than half understood.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.spec.failure_rules import FailureRule, PodCondition, parse_rules
from elastic_pytorch_operator.spec.fields import InvalidJob, reading
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
from elastic_pytorch_operator.spec.sizes import read_sizes
from elastic_pytorch_operator.spec.volumes import DELETE, ClaimTemplate

T = TypeVar("T")

REPLACE, FAIL_JOB = "Replace", "FailJob"  # failurePolicy.onPodLoss
DEFAULT_GRACE_SECONDS = 30  # Kubernetes' default of terminationGracePeriodSeconds

SAVE_DEADLINE_SECONDS, PREPARE_SECONDS = 3600, 1800
MAX_FAILURES, SETTLE_SECONDS, STORE_PORT = 3, 1.0, 29500


class JobKey(NamedTuple):
    """Names a job in the cluster."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Job:
    """The parts of an ElasticPyTorchJob that decisions are made from.

    Attributes:
        wanted: how many workers to aim at; 0 while it is suspended.
        requested: `spec.replicas`, before `allowedReplicas` have rounded it down.
        allowed: the sizes that a group may have, rising; none: any.
        unit_replicas: how many workers, of consecutive indices, hold one replica of the model. They
            are in a group all or not at all.
        checkpoint_wait_seconds: how long a planned change waits for the next checkpoint; 0: not at
            all.
        checkpoint_path: the folder that agents watch for checkpoints; empty: none.
        save_deadline_seconds: how long the last checkpoint may take once the training is done.
        growth_seconds: `resizePolicy.minSecondsBetweenGrowths`, between two rounds that make the
            group larger.
        backend: who decides on the group: the operator, or stock torchrun over c10d or etcd-v2.
        endpoint: of the user's etcd, `host:port`.
        prepare_seconds: how long scripts may set themselves up before their group exists; 0: they
            start when it does.
        shared_memory: `spec.sharedMemorySize`; empty: unset.
        queue: where it waits for quota; None: it starts without.
        version: the resource version that all this is from.
        template_uid: of the template that its spec is merged over; None: its spec is whole.
        problem: what is wrong with its spec as it is now; empty: nothing. If the job runs, the rest
            is that of the last valid spec.
        last_valid: that spec, for the status to keep; None: the present one is valid, or no valid
            one is known.
    """

    key: JobKey
    uid: str
    generation: int
    wanted: int
    minimum: int
    maximum: int
    requested: int = 0
    allowed: tuple[int, ...] = ()
    spares: int = 0
    unit_replicas: int = 1
    suspend: bool = False
    managed_by: str = ""
    nproc_per_node: str = "1"
    max_failures: int = MAX_FAILURES
    backoff_limit: int | None = None
    on_pod_loss: str = REPLACE
    rules: tuple[FailureRule, ...] = ()
    progress_deadline_seconds: int | None = None
    save_deadline_seconds: int = SAVE_DEADLINE_SECONDS
    active_deadline_seconds: int | None = None
    ttl_seconds: int | None = None
    settle_seconds: float = SETTLE_SECONDS
    growth_seconds: float = 0.0
    checkpoint_wait_seconds: float = 0.0
    checkpoint_path: str = ""
    backend: str = names.BACKEND_OPERATOR
    store_port: int = STORE_PORT
    endpoint: str = ""
    prepare_seconds: int = 0
    shared_memory: str = ""
    claims: tuple[ClaimTemplate, ...] = ()
    keep_claims: bool = True
    scheduling: Scheduling = NO_SCHEDULING
    clean_pod_policy: str = "Running"
    inject_agent: bool = True
    template: Manifest = field(default_factory=dict)
    status: Manifest = field(default_factory=dict)
    deleting: bool = False
    queue: Queue | None = None
    version: str = ""
    template_uid: str | None = None
    problem: str = ""
    last_valid: Manifest | None = None

    @property
    def ours(self) -> bool:
        """Whether this operator reconciles the job."""
        return self.managed_by in ("", names.MANAGER)

    @property
    def stock(self) -> bool:
        """Whether stock torchrun forms the group, so that the operator sees only pods."""
        return self.backend != names.BACKEND_OPERATOR

    @property
    def rounded_by(self) -> str:
        """The field, without `spec.`, that says why fewer workers are wanted than are requested."""
        return (
            "unitReplicas"
            if self.requested % self.unit_replicas
            else "resizePolicy.allowedReplicas"
        )

    def is_extra(self, index: int) -> bool:
        """Whether the worker of an index is scheduled by `scheduling.extraWorkers`."""
        return self.scheduling.extra_workers is not None and index >= self.minimum

    @property
    def extras_choose_flavors(self) -> bool:
        """Whether Kueue's Workloads beyond the minimum may have other flavors.

        Each pod then runs by the quota of its own Workload.
        """
        extra = self.scheduling.extra_workers
        return extra is not None and extra.chooses_nodes

    def quota_for(self, *, extra: bool) -> str:
        """What a Workload is for: quota that was granted for one text does not serve another."""
        workers = self.scheduling.extra_workers
        template = self.queue.template if self.queue is not None else ""
        return template + (workers.text if extra and workers is not None else "")

    def template_of(self, index: int, *, extra: bool | None = None) -> Manifest:
        """The pod template of the worker of an index.

        Args:
            extra: it runs by quota for workers beyond the minimum; None: its index says that.
        """
        workers = self.scheduling.extra_workers
        beyond = self.is_extra(index) if extra is None else extra
        return (
            workers.applied_to(self.template) if workers is not None and beyond else self.template
        )

    @property
    def pod_conditions(self) -> frozenset[PodCondition]:
        """The conditions of pods that its rules name."""
        return frozenset().union(*(rule.conditions for rule in self.rules))

    @property
    def grace_seconds(self) -> int:
        """Seconds between SIGTERM and SIGKILL of a worker pod."""
        seconds = self.template.get("spec", {}).get("terminationGracePeriodSeconds")
        return DEFAULT_GRACE_SECONDS if seconds is None else int(seconds)


def training_container(template: Manifest) -> Manifest:
    """The container that trains: the one named `pytorch`, or the only one.

    Raises:
        InvalidJob: there is no such container.
    """
    containers = template.get("spec", {}).get("containers") or []
    if len(containers) == 1 and isinstance(containers[0], Mapping):
        return containers[0]
    for container in containers:
        if isinstance(container, Mapping) and container.get("name") == names.TRAINING_CONTAINER:
            return container
    problem = (
        "needs a container"
        if not containers
        else f"one of its containers must be named `{names.TRAINING_CONTAINER}`"
    )
    raise InvalidJob("spec.template.spec.containers", problem)


def parse_key(manifest: Manifest) -> JobKey:
    metadata = manifest["metadata"]
    return JobKey(metadata.get("namespace", "default"), metadata["name"])


@reading("spec")
def parse_job(
    manifest: Manifest, defaults: JobDefaults = API_DEFAULTS, templates: Templates = NONE_READ
) -> Job:
    """Reads a job's manifest, merged over the template that its status names.

    Raises:
        TemplateUnread: it names a template that is to be read first.
        InvalidJob: a field is missing, of the wrong type or out of bounds; it names the field and
            the reason.
    """
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


@reading("spec")
def parse_whole(manifest: Manifest, spec: Manifest, defaults: JobDefaults) -> Job:
    """Reads a job whose spec is merged over its template."""
    check_job({**manifest, "spec": spec})
    metadata, template = manifest["metadata"], spec["template"]
    check_template(template)
    container = training_container(template)
    suspend, prepare = spec.get("suspend") is True, spec.get("prepare")
    failures, resizing = spec.get("failurePolicy") or {}, spec.get("resizePolicy") or {}
    rendezvous, claims = spec.get("rendezvous") or {}, spec.get("sharedVolumeClaims") or ()
    shared_memory = spec.get("sharedMemorySize")
    backend = rendezvous.get("backend") or names.BACKEND_OPERATOR
    sizes = read_sizes(spec, stock=backend != names.BACKEND_OPERATOR)
    queue = read_queue(metadata, template)
    return Job(
        key=parse_key(manifest),
        uid=metadata.get("uid", ""),
        generation=int(metadata.get("generation", 1)),
        wanted=0 if suspend else sizes.wanted,
        minimum=sizes.minimum,
        maximum=sizes.maximum,
        requested=sizes.requested,
        allowed=sizes.allowed,
        spares=sizes.spares,
        unit_replicas=sizes.unit,
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
        scheduling=read_scheduling(spec, kueue_queue=queue.name if queue else ""),
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
