"""The settings of one replica of the operator."""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from elastic_pytorch_operator.api.names import OPERATOR
from elastic_pytorch_operator.leadership.leader_endpoint import Endpoint
from elastic_pytorch_operator.leadership.lease import LeaseTiming
from elastic_pytorch_operator.manifests.agent_injection import AgentImage
from elastic_pytorch_operator.model.announced_ends import MARKS, Mark
from elastic_pytorch_operator.reconcile.write_slots import MAX_WRITES
from elastic_pytorch_operator.spec.platform.job_defaults import API_DEFAULTS, JobDefaults


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    operator_url: str
    host: str  # `::`: every address, of IPv6 and IPv4
    port: int
    probe_port: int  # with the metrics, unless there is a `metrics_port`
    namespace: str = ""  # of the pod and the Lease; empty: the only replica, which leads at once
    pod: str = ""  # the replica's identity: a restarted container goes on as the same one
    endpoint: Endpoint | None = None
    watched: tuple[str, ...] = ()  # namespaces; none: all
    marks: tuple[Mark, ...] = MARKS
    defaults: JobDefaults = API_DEFAULTS
    kueue: bool = False
    name: str = OPERATOR  # of Lease and Service; those of Secret and EndpointSlices begin with it
    metrics_port: int = 0  # over TLS, for clients that may read the metrics; 0: none
    existing_secret: str = ""  # which others keep; empty: it makes its own certificate
    max_writes: int = MAX_WRITES
    agent_image: AgentImage | None = None
    timing: LeaseTiming = field(default_factory=LeaseTiming)
    metrics_per_job: bool = False

    @property
    def server_name(self) -> str:
        return urlsplit(self.operator_url).hostname or ""
