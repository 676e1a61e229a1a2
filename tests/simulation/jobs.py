"""The jobs of a simulated world: of all sorts, and what each must come to."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from elastic_pytorch_operator.api import kueue
from elastic_pytorch_operator.api.manifest import Manifest, MutableManifest

from tests.simulation.api_server import NAMESPACE
from tests.simulation.groups import Training

HOUR = 3600.0
DEADLINES = (("startTime", "activeDeadlineSeconds"), ("completionTime", "ttlSecondsAfterFinished"))


@dataclass
class UsersJob:
    name: str
    sort: str
    manifest: MutableManifest
    training: Training
    invalid: bool = False

    @property
    def spec(self) -> dict[str, Any]:
        return dict(self.manifest["spec"])

    @property
    def queued(self) -> bool:
        return kueue.LABEL_QUEUE in self.manifest["metadata"]["labels"]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The least, the wanted and the largest number of workers."""
        spec = self.manifest["spec"]
        replicas = spec["replicas"]
        return spec.get("minReplicas", replicas), replicas, spec.get("maxReplicas", replicas)

    def deadlines(self, status: Manifest) -> Iterator[datetime]:
        """The times of day at which the operator ends or deletes it."""
        for since, field in DEADLINES:
            if status.get(since) and field in self.spec:
                yield datetime.fromisoformat(status[since]) + timedelta(seconds=self.spec[field])


def _elastic(dice: random.Random) -> dict[str, Any]:
    replicas = dice.randint(2, 6)
    return {"replicas": replicas, "minReplicas": dice.randint(1, 2), "maxReplicas": replicas + 2}


def _fixed(dice: random.Random) -> dict[str, Any]:
    return {"replicas": dice.randint(1, 5)}


def _spares(dice: random.Random) -> dict[str, Any]:
    return {
        "replicas": dice.randint(2, 4),
        "minReplicas": 2,
        "maxReplicas": 5,
        "spares": dice.randint(1, 2),
    }


def _units(dice: random.Random) -> dict[str, Any]:
    return {
        "replicas": 2 * dice.randint(1, 3),
        "minReplicas": 2,
        "maxReplicas": 8,
        "unitReplicas": 2,
    }


def _limited(dice: random.Random) -> dict[str, Any]:
    rules = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
    return {
        **_elastic(dice),
        "activeDeadlineSeconds": round(dice.uniform(4, 12) * HOUR),
        "ttlSecondsAfterFinished": round(HOUR),
        "progressDeadlineSeconds": 120,
        "failurePolicy": {"maxFailures": 5, "rules": rules},
    }


def _rounded(dice: random.Random) -> dict[str, Any]:
    resizing = {"allowedReplicas": [2, 4, 6], "minSecondsBetweenGrowths": 60, "settleSeconds": 2}
    return {
        "replicas": dice.randint(2, 6),
        "minReplicas": 2,
        "maxReplicas": 6,
        "resizePolicy": resizing,
    }


SORTS: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "elastic": _elastic,
    "fixed": _fixed,
    "spares": _spares,
    "units": _units,
    "limited": _limited,
    "rounded": _rounded,
    "queued": _elastic,
    "queued-fixed": _fixed,
    "queued-spares": _spares,
}


def template(version: int = 0) -> dict[str, Any]:
    limits = {"cpu": str(1 + version)}
    return {
        "spec": {
            "containers": [
                {
                    "name": "pytorch",
                    "image": "torch",
                    "args": ["train.py"],
                    "resources": {"limits": limits},
                }
            ]
        }
    }


def new_job(number: int, seed: int) -> UsersJob:
    """The job of a number, which trains for hours, of one sort after the other."""
    dice = random.Random(f"job {seed} {number}")
    order = random.Random(f"sorts {seed}").sample(list(SORTS), len(SORTS))
    sort = order[number % len(order)]
    name = f"{sort}-{number}"
    labels = {}
    if sort.startswith("queued"):
        labels = {
            kueue.LABEL_QUEUE: "team",
            kueue.LABEL_PRIORITY_CLASS: f"priority-{dice.choice((0, 0, 100))}",
        }
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
    about = {
        "apiVersion": "elasticpytorch.dev/v1alpha1",
        "kind": "ElasticPyTorchJob",
        "metadata": metadata,
    }
    step_seconds = dice.uniform(0.5, 4.0)
    training = Training(round(dice.uniform(2, 20) * HOUR / step_seconds), step_seconds)
    spec = {**SORTS[sort](dice), "template": template()}
    training.unit = spec.get("unitReplicas", 1)
    return UsersJob(name, sort, {**about, "spec": spec}, training)
