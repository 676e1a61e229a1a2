"""Pods whose labels or annotations admission rewrites, so that no list finds them."""

from typing import Any

import pytest
from elastic_pytorch_local.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import find_condition
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.resources import PODS, Resource
from elastic_pytorch_operator.reconcile.execute import find_rewritten

from tests.operator.builders import a_manifest
from tests.operator.running_controller import RunningController
from tests.operator.virtual_time import run_in_virtual_time

ROLE = {names.LABEL_ROLE: names.ROLE_WORKER}


class Rewriting(FakeCluster):
    """Admission changes labels of pods; lists have what a selector of the role has.

    Attributes:
        sets: the labels by name; None: it is removed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sets: Manifest = {}

    async def create(
        self, resource: Resource, manifest: Manifest, *, strict: bool = False, dry_run: bool = False
    ) -> Manifest:
        if resource is PODS:
            labels = {
                name: value
                for name, value in {**manifest["metadata"]["labels"], **self.sets}.items()
                if value
            }
            manifest = {**manifest, "metadata": {**manifest["metadata"], "labels": labels}}
        return await super().create(resource, manifest, strict=strict, dry_run=dry_run)

    async def list_all(self, resource: Resource, namespace: str = "") -> list[Manifest]:
        found = await super().list_all(resource, namespace)
        return [
            each
            for each in found
            if resource is not PODS or names.LABEL_ROLE in each["metadata"]["labels"]
        ]


class World(RunningController[Rewriting]):
    def _watch(self, kind: str, change: str | None, found: dict[str, Any]) -> None:
        if kind != "Pod" or names.LABEL_ROLE in found["metadata"]["labels"]:
            super()._watch(kind, change, found)

    def serving(self) -> list[Manifest]:
        return [pod for pod in self.cluster.pods() if not pod["metadata"].get("deletionTimestamp")]

    def running(self) -> Manifest:
        return find_condition(self.cluster.job("lm").get("status", {}), names.RUNNING)


@pytest.mark.parametrize("role", [None, "backend"])
def test_rewritten_pod_is_deleted_and_named_until_the_policy_is_lifted(role: str | None) -> None:
    async def scenario() -> None:
        world = World(Rewriting())
        world.cluster.sets = {names.LABEL_ROLE: role}
        async with world.runs():
            world.cluster.apply_job(a_manifest(replicas=3))
            await world.until(lambda: names.LABEL_ROLE in world.running().get("message", ""), 60)
            assert world.running()["reason"] == names.WAITING_FOR_WORKERS
            (event,) = [event for event in world.cluster.events if event["reason"] == names.REFUSED]
            assert names.LABEL_ROLE in event["note"]
            assert all(pod["metadata"].get("deletionTimestamp") for pod in world.cluster.pods())
            world.cluster.sets = {}
            await world.until(lambda: len(world.serving()) == 3, 60)
            assert all(pod["metadata"]["labels"].items() >= ROLE.items() for pod in world.serving())

    run_in_virtual_time(scenario())


SENT = {
    "labels": {**ROLE, "team": "a"},
    "annotations": {names.ANNOTATION_TRAINING_CONTAINER: "pytorch"},
}


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        (SENT, ""),
        ({**SENT, "labels": {**ROLE, "team": "b", "more": "c"}}, ""),
        ({**SENT, "labels": {"team": "a"}}, "removes the label elasticpytorch.dev/role"),
        (
            {**SENT, "labels": {**SENT["labels"], names.LABEL_ROLE: "web"}},
            "sets to 'web' the label elasticpytorch.dev/role",
        ),
        (
            {"labels": SENT["labels"]},
            "removes the annotation elasticpytorch.dev/training-container",
        ),
        ({}, "removes the label elasticpytorch.dev/role"),
    ],
)
def test_only_what_the_operator_reads_from_its_pods_must_come_back(
    stored: Manifest, words: str
) -> None:
    found = find_rewritten({"metadata": SENT}, {"metadata": stored})
    assert words in found
    assert bool(found) is bool(words)
