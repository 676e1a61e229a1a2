"""A hostile tenant's acts, and what it writes into its own objects. Pure.

It may edit only its namespaces: the API server admits what it writes, and the operator cannot read
or build it.
"""

from collections.abc import Mapping
from typing import Any

from elastic_pytorch_operator.api import names

# docs/evidence/reliability.md describes each. A run proves nothing about an act that never came.
ACTS = (
    *("annotations", "quantities", "templates", "flood", "webhook", "quota", "namespace"),
    *("scrape", "tokens", "churn", "large-jobs", "large-metadata", "long-words", "claims"),
    "half-lines",
)

LONG = "9" * 5000
# Python's str.isdigit is true of the first three, and int() takes neither the first nor the third.
UNREADABLE_TEXTS = ("²", "٣", LONG, "-1", "1e309", "NaN", "{", ",,,", "0x10", "1_000")
UNREADABLE_ANNOTATIONS = (
    names.ANNOTATION_GROUP_RESTARTS,
    names.ANNOTATION_FAILED_STARTS,
    names.ANNOTATION_AVOIDS,
    names.ANNOTATION_PREFERS_OTHERS,
    names.ANNOTATION_TRAINING_CONTAINER,
)
UNREADABLE_LABELS = ("x", "9" * 63, "65536", "1.5", "", "0x1", "1e9", "00000000000000000001")


def unreadable(turn: int) -> dict[str, Any]:
    """Metadata in which only the owner's name is readable; turns pair all texts and labels."""
    text = UNREADABLE_TEXTS[turn % len(UNREADABLE_TEXTS)]
    label = UNREADABLE_LABELS[turn // 2 % len(UNREADABLE_LABELS)]
    annotations = dict.fromkeys(UNREADABLE_ANNOTATIONS, text)
    return {
        "annotations": annotations,
        "labels": {names.LABEL_WORKER_INDEX: label, names.LABEL_RENDEZVOUS: label},
    }


# etcd takes 1.5 MiB, the API server 256 KiB of annotations including the unreadable ones, and the
# schema 256 labels of a template.
JOB_BYTES, ANNOTATION_BYTES, LABELS, TEMPLATE_LABELS, WORDS = 1_400_000, 230_000, 2_000, 200, 5_000


def many_labels(number: int) -> dict[str, str]:
    return {f"hostile.example.com/{n:063d}": "x" * 63 for n in range(number)}


def large_metadata(turn: int) -> dict[str, Any]:
    letter = chr(ord("a") + turn % 26)
    return {
        "annotations": {"hostile.example.com/words": letter * ANNOTATION_BYTES},
        "labels": many_labels(LABELS),
    }


def _limited(**quantities: str) -> dict[str, Any]:
    limits = {name.replace("gpu", "nvidia.com/gpu"): text for name, text in quantities.items()}
    return {"container": {"resources": {"limits": limits, "requests": dict(limits)}}}


# Each is merged into a valid job: its spec, the spec of its pods, and the training container.
UNBUILDABLE_QUANTITIES: Mapping[str, Mapping[str, Any]] = {
    "gpu-of-310-digits": _limited(gpu="9" * 310),
    "gpu-of-5000-digits": _limited(gpu=LONG),
    "gpu-of-a-large-exponent": _limited(gpu="1e999"),
    "memory-of-400-digits": _limited(memory="9" * 400),
    "cpu-of-400-digits": _limited(cpu="9" * 400),
}
UNBUILDABLE_TEMPLATES: Mapping[str, Mapping[str, Any]] = {
    "volume-name-is-a-list": {
        "spec": {
            "sharedVolumeClaims": [
                {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
            ]
        },
        "pod": {"volumes": [{"name": ["x"], "emptyDir": {}}]},
    },
    "variable-name-is-an-object": {"container": {"env": [{"name": {"a": 1}, "value": "x"}]}},
    "mounts-are-a-text": {"container": {"volumeMounts": "x"}},
    "grace-period-is-a-text": {"pod": {"terminationGracePeriodSeconds": "soon"}},
    "affinity-is-a-list": {"pod": {"affinity": ["x"]}},
    "init-containers-are-numbers": {"pod": {"initContainers": [1, 2]}},
}
# Some of these jobs make no pod, because a pod has no room for them.
LARGE: Mapping[str, Mapping[str, Any]] = {
    "one-large-variable": {"container": {"env": [{"name": "WORDS", "value": "x" * JOB_BYTES}]}},
    "many-variables": {
        "container": {"env": [{"name": f"V{n}", "value": "x" * 100} for n in range(WORDS)]}
    },
    "a-long-argument": {"container": {"args": ["train.py", "y" * 1_000_000]}},
    "a-long-node-selector": {"pod": {"nodeSelector": many_labels(WORDS)}},
    "large-template-metadata": {
        "template": {
            "labels": many_labels(TEMPLATE_LABELS),
            "annotations": {"words": "x" * 200_000},
        }
    },
    "large-metadata": {"metadata": large_metadata(0)},
}
