"""The settings of one replica of the operator."""

from dataclasses import dataclass

from elastic_pytorch_operator.api.names import OPERATOR
from elastic_pytorch_operator.leadership.leader_endpoint import Endpoint
from elastic_pytorch_operator.model.announced_ends import MARKS, Mark
from elastic_pytorch_operator.reconcile.write_slots import MAX_WRITES
from elastic_pytorch_operator.spec.platform.job_defaults import API_DEFAULTS, JobDefaults


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    operator_url: str  # where agents find the one that leads
    host: str  # `::`: every address, of IPv6 and IPv4
    port: int
    probe_port: int  # for kubelets, and for Prometheus if there is no `metrics_port`
    # Of its pod and of the Lease; empty: there is no other replica, it leads at once.
    namespace: str = ""
    # Its name, which is its identity: a restarted container goes on where the one before it was.
    pod: str = ""
    endpoint: Endpoint | None = None  # where the Service is to lead; None: there is none
    watched: tuple[str, ...] = ()  # namespaces; none: all
    marks: tuple[Mark, ...] = MARKS
    defaults: JobDefaults = API_DEFAULTS
    kueue: bool = False
    # Of the Lease and of the Service; those of the Secret and of the EndpointSlices begin with it.
    name: str = OPERATOR
    # For Prometheus, over TLS, for clients that may read the metrics; 0: all may, on `probe_port`.
    metrics_port: int = 0
    # The Secret with the operator's certificate, which others keep; empty: it makes its own.
    existing_secret: str = ""
    max_writes: int = MAX_WRITES
