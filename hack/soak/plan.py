"""Which kinds of faults a soak makes, and to which jobs. Pure."""

from collections.abc import Collection, Iterable
from functools import partial

from soak.drawn_acts import Kind

lost = partial(Kind, loses=True)
away = partial(Kind, unsettles=True)
cut_off = partial(Kind, loses=True, unsettles=True, isolates=True)
of_bucket = partial(Kind, job="bucket")
KINDS = {
    kind.name: kind
    for kind in (
        lost("kill-process", "worker", "a training process is killed"),
        lost("kill-container", "worker", "a training container is killed"),
        Kind("delete-pod", "worker", "a worker's pod is deleted"),
        lost("delete-pod-now", "worker", "a worker's pod is deleted without grace"),
        Kind("scale", "size", "a job is scaled"),
        Kind("drain", "node", "a node is drained", (5, 30)),
        Kind("cordon", "node", "a node is cordoned", (5, 30)),
        lost("kill-node", "node", "a node dies, and comes back", (5, 40), unsettles=True),
        cut_off("pause-node", "node", "a node freezes, and goes on", (2, 40)),
        cut_off("cut-node", "node", "a node is cut off, and reached again", (2, 40)),
        away("kill-leader", "operator", "the leading operator is killed"),
        away("kill-operators", "operator", "all operators are killed"),
        away("roll-operator", "operator", "the operator's Deployment is rolled over"),
        away("rotate-certificate", "operator", "the operator's certificate is made again"),
        away("freeze-api", "control plane", "the API server does not answer", (5, 90)),
        away("kill-api", "control plane", "the API server is killed"),
        away("slow-etcd", "control plane", "etcd stops for half of each second", (10, 40)),
        Kind("stop-dns", "control plane", "the cluster's DNS has no servers", (10, 40)),
        Kind("refuse-writes", "storage", "the checkpoint folder refuses writes", (5, 30)),
        Kind("remove-image", "image", "a node loses the workers' image", (5, 30)),
        of_bucket("kill-job", "worker", "all containers of the job are killed at once", loses=True),
        of_bucket("refuse-requests", "storage", "the bucket's server answers 503", (5, 30)),
        of_bucket("cut-connections", "storage", "the bucket's server cuts connections", (5, 30)),
        of_bucket("pause-server", "storage", "the bucket's server freezes, and goes on", (5, 30)),
    )
}

# Not part of a plan: a sort of job is suspended and resumed all the time.
SUSPEND = Kind("suspend", "size", "a job is suspended and resumed")

SETTLED = tuple(kind.name for kind in KINDS.values() if not kind.unsettles)


def made_to(jobs: Collection[str], kinds: Iterable[str]) -> list[str]:
    return [kind for kind in kinds if not KINDS[kind].job or KINDS[kind].job in jobs]
