"""Jobs as a tenant may write them: with any JSON at a few places of one that sets all."""

from collections.abc import Iterator
from typing import Any

from elastic_pytorch_operator.api import kueue
from elastic_pytorch_operator.api.manifest import copied
from hypothesis import strategies as st

from tests.operator.builders import a_manifest

_REQUIREMENT = {"key": "pool", "operator": "In", "values": ["a"]}
_CONTAINER = {
    "name": "pytorch",
    "image": "torch",
    "args": ["train.py"],
    "command": ["torchrun", "train.py"],
    "env": [{"name": "A", "value": "1"}, {"name": "PYTHONPATH", "value": "/src"}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    "resources": {
        "requests": {"cpu": "2", "memory": "4Gi"},
        "limits": {"nvidia.com/gpu": "2", "memory": "4Gi"},
    },
    "securityContext": {},
}
TEMPLATE = {
    "metadata": {
        "labels": {"team": "ml"},
        "annotations": {
            kueue.TOPOLOGY_REQUIRED: "rack",
            kueue.TOPOLOGY_SLICE: "host",
            kueue.TOPOLOGY_SLICE_SIZE: "2",
        },
    },
    "spec": {
        "containers": [_CONTAINER, {"name": "sidecar", "resources": {"requests": {"cpu": "1"}}}],
        "initContainers": [
            {"name": "download", "restartPolicy": "Always", "resources": {"limits": {"cpu": "1"}}}
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "nodeSelector": {"pool": "a"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                _REQUIREMENT,
                                {**_REQUIREMENT, "operator": "Gt", "values": ["1"]},
                            ]
                        },
                        {"matchFields": [_REQUIREMENT]},
                    ]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "preference": {}}
                ],
            }
        },
        "schedulingGates": [{"name": "mine"}],
        "securityContext": {"runAsUser": 0},
        "priorityClassName": "high",
        "schedulerName": "another",
        "overhead": {"memory": "1Mi"},
        "resources": {"requests": {"cpu": "3"}},
        "terminationGracePeriodSeconds": 5,
    },
}
# Fields that not every job may have, each with what it has to be beside.
_KINDS: list[dict[str, Any]] = [
    {"minReplicas": 1, "maxReplicas": 4, "nprocPerNode": 2, "resizePolicy": {"settleSeconds": 1}},
    {"minReplicas": 1, "rendezvous": {"backend": "c10d", "port": 29500}},
    {"scheduling": {"gangScheduler": "Coscheduling"}},
    {
        "minReplicas": 1,
        "scheduling": {"extraWorkers": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "a"}]}},
    },
    {
        "minReplicas": 1,
        "resizePolicy": {
            "allowedReplicas": [2, 3],
            "checkpointWaitSeconds": 1,
            "checkpointPath": "/c",
        },
    },
    {
        "failurePolicy": {
            "rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [3]}}],
            "backoffLimit": 1,
        }
    },
    {"minReplicas": 1, "prepare": {"timeoutSeconds": 60}, "spares": 2},
    {
        "replicas": 4,
        "minReplicas": 2,
        "maxReplicas": 6,
        "unitReplicas": 2,
        "scheduling": {"unitTopology": {"topologyKey": "rack"}, "rankTopologyKey": "rack"},
    },
    {"sharedMemorySize": "1Gi"},
    {
        "sharedVolumeClaims": [{"metadata": {"name": "ckpt"}, "spec": {"resources": {}}}],
        "sharedVolumeClaimRetentionPolicy": {},
    },
]
_QUEUED = {kueue.LABEL_QUEUE: "team"}


def _nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


_NUMBERS = st.integers() | st.floats() | st.sampled_from([2**31, 2**63, 10**310])
_TEXTS = st.text(max_size=5) | st.sampled_from(
    ["9" * 306, "9" * 310, "9" * 5000, "²", "1" * 10, "-1", "1e99", "5E", "pytorch", "\ud800"]
)
_LEAVES = st.none() | st.booleans() | _NUMBERS | _TEXTS
MAX_LEVELS = 20
_DEEP = st.sampled_from([50, 100, 1000]).map(_nested)
ANY_JSON = _DEEP | st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=5,
)


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to everything in some JSON, but what lies deeper than any field of a pod."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for name, inner in items:
        yield (*above, name)
        if len(above) < MAX_LEVELS:
            yield from places(inner, (*above, name))


@st.composite
def any_objects(draw: st.DrawFn, whole: dict[str, Any], below: str = "") -> Any:
    """An object with up to three of its parts replaced by any JSON.

    Args:
        draw: hypothesis'.
        whole: is not changed.
        below: the one of its fields whose parts may change; empty: all.
    """
    changed = copied(whole)
    for _ in range(draw(st.integers(0, 3))):
        there = [
            place
            for place in places(changed)
            if not below or (place[0] == below and len(place) > 1)
        ]
        if not there:
            break
        *way, last = draw(st.sampled_from(there))
        holder = changed
        for name in way:
            holder = holder[name]
        holder[last] = draw(ANY_JSON)
    return changed


@st.composite
def any_jobs(draw: st.DrawFn) -> Any:
    """A job, with any JSON in a few places of it."""
    template = copied(TEMPLATE)
    if draw(st.booleans()):
        del template["spec"]["containers"][0]["command"]
    job = a_manifest(minimum=None, maximum=None, template=template, **draw(st.sampled_from(_KINDS)))
    if draw(st.booleans()):
        job["metadata"] |= {
            "labels": dict(_QUEUED),
            "annotations": {f"{kueue.PROVISIONING_PREFIX}a": "b"},
        }
    return draw(any_objects(job, below=draw(st.sampled_from(["spec", "spec", "spec", "metadata"]))))
