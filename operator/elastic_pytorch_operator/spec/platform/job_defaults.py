"""What the cluster's team has set for all jobs: it holds where a job says nothing itself. Pure.

It is applied when a job is read, and is stored in no job. So a new default counts for the jobs that
are there, and for their next pods.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elastic_pytorch_operator.api.manifest import Manifest

# The first one is Kubernetes' way, and the API's default.
CLEAN_POD_POLICIES = ("Running", "None", "All")


@dataclass(frozen=True, slots=True)
class JobDefaults:
    """Defaults of fields of all jobs.

    Attributes:
        ttl_seconds: of `ttlSecondsAfterFinished`; None: jobs stay.
        clean_pod_policy: of `cleanPodPolicy`.
        tolerations: which all worker pods have in addition to their template's.
    """

    ttl_seconds: int | None = None
    clean_pod_policy: str = CLEAN_POD_POLICIES[0]
    tolerations: tuple[Manifest, ...] = ()


API_DEFAULTS = JobDefaults()


def parse_tolerations(text: str) -> tuple[Manifest, ...]:
    """Reads tolerations, a JSON list of objects.

    Raises:
        ValueError: it is something else.
    """
    found: Any = json.loads(text)
    if not isinstance(found, list) or not all(
        isinstance(toleration, Mapping) for toleration in found
    ):
        raise ValueError(f"tolerations must be a JSON list of objects, not {text}")
    return tuple(found)
