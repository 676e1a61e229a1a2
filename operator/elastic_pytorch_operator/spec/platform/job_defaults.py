"""The cluster team's defaults for fields that a job leaves out. Pure.

They are applied when a job is read, and stored in no job: a new default counts for all jobs.
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
    ttl_seconds: int | None = None  # `ttlSecondsAfterFinished`; None: jobs stay
    clean_pod_policy: str = CLEAN_POD_POLICIES[0]
    tolerations: tuple[Manifest, ...] = ()  # of all worker pods, beside their template's


API_DEFAULTS = JobDefaults()


def parse_tolerations(text: str) -> tuple[Manifest, ...]:
    """Reads tolerations; ValueError: they are no JSON list of objects."""
    found: Any = json.loads(text)
    if not isinstance(found, list) or not all(
        isinstance(toleration, Mapping) for toleration in found
    ):
        raise ValueError(f"tolerations must be a JSON list of objects, not {text}")
    return tuple(found)
