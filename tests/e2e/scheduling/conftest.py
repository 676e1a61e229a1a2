"""The nodes on which tests count out places."""

import json
from collections.abc import Iterator

import pytest
from measure.kind_cluster import CONTROL_PLANE

from tests.e2e.job_under_test import run_kubectl
from tests.e2e.scheduling.slots import give_slots


@pytest.fixture
def slot_nodes() -> Iterator[list[str]]:
    """The three workers of the cluster, whose slots are taken away after the test."""
    found = [
        node["metadata"]["name"]
        for node in json.loads(run_kubectl("get", "nodes", "-o", "json").stdout)["items"]
    ]
    names = [name for name in found if name != CONTROL_PLANE]
    assert len(names) == 3
    yield names
    give_slots(names, 0)
