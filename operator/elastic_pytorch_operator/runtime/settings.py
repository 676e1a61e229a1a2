"""The settings of one replica of the operator."""

from dataclasses import dataclass

from elastic_pytorch_operator.api.names import OPERATOR
from elastic_pytorch_operator.leadership.leader_endpoint import Endpoint
from elastic_pytorch_operator.model.announced_ends import MARKS, Mark
from elastic_pytorch_operator.reconcile.write_slots import MAX_WRITES
from elastic_pytorch_operator.spec.platform.job_defaults import API_DEFAULTS, JobDefaults


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """Where a replica runs, and what it watches.

    Attributes:
        operator_url: where agents find the one that leads.
        host: the address that it listens at; `::` is every one, of IPv6 and IPv4.
        port: for agents.
        probe_port: for kubelets, and for Prometheus if there is no `metrics_port`.
        namespace: of its pod and of the Lease; empty: there is no other replica, it leads at once.
        pod: its name, which is its identity: a restarted container goes on where the one before it was.
        endpoint: where the Service is to lead; None: no Service is between agents and the operator.
        watched: the namespaces whose jobs it reconciles; none: all.
        marks: the taints and labels that announce a node's end.
        defaults: of the fields that jobs leave out.
        kueue: whether jobs with a queue ask Kueue for quota.
        name: of the Lease and of the Service; those of the Secret and of the EndpointSlices begin with it.
        metrics_port: for Prometheus, over TLS, for clients that may read the metrics; 0: all may, on `probe_port`.
        max_writes: to the API server that may be on their way at once.
    """

    operator_url: str
    host: str
    port: int
    probe_port: int
    namespace: str = ""
    pod: str = ""
    endpoint: Endpoint | None = None
    watched: tuple[str, ...] = ()
    marks: tuple[Mark, ...] = MARKS
    defaults: JobDefaults = API_DEFAULTS
    kueue: bool = False
    name: str = OPERATOR
    metrics_port: int = 0
    max_writes: int = MAX_WRITES
