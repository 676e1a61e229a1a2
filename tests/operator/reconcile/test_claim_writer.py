import asyncio
from typing import Any

import pytest
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.resources import CLAIMS
from elastic_pytorch_operator.api.write_errors import Judgement
from elastic_pytorch_operator.cluster.interface import ClusterError
from elastic_pytorch_operator.reconcile import claim_writer
from elastic_pytorch_operator.reconcile.claim_writer import ClaimWriter, check_claim
from elastic_pytorch_operator.reconcile.existing_objects import BlockedError
from elastic_pytorch_operator.spec.job import parse_job

from tests.operator.builders import a_manifest
from tests.operator.faulty_cluster import FaultyCluster
from tests.operator.running_controller import Running

SPEC = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
TEMPLATES = [{"metadata": {"name": name}, "spec": SPEC} for name in ("checkpoints", "data")]
OURS = {names.LABEL_MANAGED_BY: names.OPERATOR, names.LABEL_JOB_NAME: "lm"}
QUOTA = 'persistentvolumeclaims "checkpoints-lm" is forbidden: exceeded quota: storage'


def a_job_with_claims(backend: str = "operator", **spec: Any) -> dict[str, Any]:
    endpoint = {"endpoint": "etcd:2379"} if backend == "etcd-v2" else {}
    return a_manifest(
        sharedVolumeClaims=TEMPLATES, rendezvous={"backend": backend, **endpoint}, **spec
    )


async def make_claim(running: Running, **metadata: Any) -> None:
    """A claim that was there before the job."""
    claim = {
        "metadata": {"name": "checkpoints-lm", "namespace": "default", **metadata},
        "spec": {"of": "another"},
    }
    await running.cluster.create(CLAIMS, claim)
    running.cluster.calls.clear()


async def claim_of(running: Running, name: str) -> Manifest | None:
    try:
        return await running.cluster.get(CLAIMS, "default", name)
    except ClusterError as error:
        assert error.code == 404
        return None


@pytest.mark.parametrize("backend", ["operator", "etcd-v2"])
async def test_claims_are_created_once_and_before_the_pods(running: Running, backend: str) -> None:
    running.cluster.apply_job(a_job_with_claims(backend))
    await running.until_pods(3)
    calls = running.cluster.calls
    assert calls.count("create PersistentVolumeClaim") == 2
    assert max(
        n for n, call in enumerate(calls) if call == "create PersistentVolumeClaim"
    ) < calls.index("create Pod")
    running.lose_pod(-1)
    await running.until_pods(3)
    assert calls.count("create PersistentVolumeClaim") == 2
    assert "get PersistentVolumeClaim" not in calls


@pytest.mark.parametrize(("policy", "stays"), [("Retain", True), ("Delete", False)])
async def test_claim_stays_or_goes_with_its_job_and_the_next_job_finds_it(
    running: Running, policy: str, stays: bool
) -> None:
    manifest = a_job_with_claims(sharedVolumeClaimRetentionPolicy={"whenDeleted": policy})
    running.cluster.apply_job(manifest)
    await running.until_pods(3)
    before = await claim_of(running, "checkpoints-lm")
    running.cluster.remove_job("lm")
    for pod in running.cluster.pods():
        running.cluster.finish_deletion("default", pod["metadata"]["name"])
    assert (await claim_of(running, "checkpoints-lm") is not None) is stays
    running.cluster.apply_job(manifest)
    await running.until_pods(3)
    after = await claim_of(running, "checkpoints-lm")
    assert before is not None
    assert after is not None
    assert (before["metadata"]["uid"] == after["metadata"]["uid"]) is stays


async def test_suspended_job_has_no_claim_but_asks_whether_it_could(running: Running) -> None:
    running.cluster.apply_job(a_job_with_claims(suspend=True))
    await running.until(lambda: "try Pod" in running.cluster.calls)
    assert running.cluster.calls.count("try PersistentVolumeClaim") == 2
    assert "create PersistentVolumeClaim" not in running.cluster.calls
    running.cluster.apply_job(a_job_with_claims())
    await running.until_pods(3)
    assert running.cluster.calls.count("create PersistentVolumeClaim") == 2


@pytest.mark.parametrize(("labels", "reason"), [(OURS, "JobSuspended"), ({}, "RefusedByApiServer")])
async def test_suspended_job_says_whether_an_existing_claim_is_its_own(
    running: Running, labels: dict[str, str], reason: str
) -> None:
    await make_claim(running, labels=labels)
    running.cluster.apply_job(a_job_with_claims(suspend=True))
    await running.until(lambda: "get PersistentVolumeClaim" in running.cluster.calls)
    await running.until(lambda: running.condition("Suspended").startswith(reason))


async def test_strangers_claim_is_told_and_never_mounted_or_deleted(running: Running) -> None:
    await make_claim(running)
    running.cluster.apply_job(a_job_with_claims())
    words = "PersistentVolumeClaim checkpoints-lm exists and was not created for this job"
    await running.until(lambda: words in running.condition("Running"))
    await running.until(lambda: len(running.events("RefusedByApiServer")) == 1)
    await asyncio.sleep(0.3)
    assert running.indices() == []
    claim = await claim_of(running, "checkpoints-lm")
    assert claim is not None
    assert claim["spec"] == {"of": "another"}


async def test_claim_of_a_job_just_deleted_is_waited_for(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_writer, "CLAIM_GOES_SECONDS", 0.5)
    owner = {"kind": names.KIND, "name": "lm", "uid": "before"}
    await make_claim(running, labels=OURS, ownerReferences=[owner])
    running.cluster.apply_job(a_job_with_claims())
    await running.until(lambda: "get PersistentVolumeClaim" in running.cluster.calls)
    assert running.indices() == []
    running.cluster.remove_claim("checkpoints-lm")
    await running.until(lambda: len(running.indices()) == 3, 60)
    assert "PersistentVolumeClaim" not in running.condition("Running")


async def test_retained_claim_is_used_as_it_is_also_where_the_quota_is_used_up(
    running: Running,
) -> None:
    await make_claim(running, labels=OURS)
    running.cluster.fail_next("create PersistentVolumeClaim", 403, QUOTA)
    running.cluster.apply_job(
        a_job_with_claims(sharedVolumeClaimRetentionPolicy={"whenDeleted": "Delete"})
    )
    await running.until_pods(3)
    claim = await claim_of(running, "checkpoints-lm")
    assert claim is not None
    assert "ownerReferences" not in claim["metadata"], "it outlives a job that has not created it"
    assert running.events("RefusedByApiServer") == []


@pytest.mark.parametrize("backend", ["operator", "c10d"])
async def test_refused_claim_is_told_once_and_no_pod_is_created_without_it(
    running: Running, backend: str
) -> None:
    for _ in range(20):
        running.cluster.fail_next("create PersistentVolumeClaim", 403, QUOTA)
    running.cluster.apply_job(a_job_with_claims(backend))
    await running.until(lambda: QUOTA in running.condition("Running"))
    await asyncio.sleep(0.5)
    assert running.cluster.calls.count("create PersistentVolumeClaim") == 1, (
        "the second one is not asked for either"
    )
    assert running.indices() == []
    assert len(running.events("RefusedByApiServer")) == 1


async def test_trouble_passes_without_a_word(running: Running) -> None:
    running.cluster.fail_next("create PersistentVolumeClaim", 500, "etcdserver: request timed out")
    running.cluster.apply_job(a_job_with_claims())
    await running.until_pods(3)
    assert running.events("RefusedByApiServer") == []


@pytest.mark.parametrize("verb", ["create PersistentVolumeClaim", "try PersistentVolumeClaim"])
async def test_template_that_no_claim_can_be_made_of_fails_the_job(
    running: Running, verb: str
) -> None:
    words = 'PersistentVolumeClaim "checkpoints-lm" is invalid: spec.accessModes: Required value'
    running.cluster.fail_next(verb, 422, words)
    running.cluster.apply_job(a_job_with_claims(suspend=verb == "try PersistentVolumeClaim"))
    expected = f"InvalidTemplate: spec.sharedVolumeClaims cannot make a claim: {words}"
    await running.until(lambda: running.condition("Failed") == expected)
    assert running.indices() == []


async def test_claims_are_looked_for_again_once_they_are_forgotten() -> None:
    cluster, job = FaultyCluster(), parse_job(a_job_with_claims())
    writer = ClaimWriter(cluster)
    for write in writer.missing(job).values():
        await write()
    assert writer.missing(job) == {}
    writer.forget()
    cluster.remove_claim("data-lm")
    for write in writer.missing(job).values():
        await write()
    assert writer.missing(job) == {}
    assert await cluster.get(CLAIMS, "default", "data-lm")


def owner(uid: str, kind: str = "ElasticPyTorchJob", name: str = "lm") -> dict[str, str]:
    return {"kind": kind, "name": name, "uid": uid}


@pytest.mark.parametrize(
    ("metadata", "conflict"),
    [
        ({"labels": OURS}, ""),
        ({"labels": {**OURS, "team": "ml"}, "ownerReferences": []}, ""),
        ({"labels": OURS, "ownerReferences": [owner("uid-lm")]}, ""),
        ({"ownerReferences": [owner("other", "Backup", "nightly"), owner("uid-lm")]}, ""),
        ({"labels": OURS, "ownerReferences": [owner("before")]}, "passes"),
        ({"labels": OURS, "deletionTimestamp": "2026-01-01T00:00:00Z"}, "passes"),
        (
            {"ownerReferences": [owner("uid-lm")], "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "passes",
        ),
        ({}, "stays"),
        ({"labels": {names.LABEL_JOB_NAME: "lm"}}, "stays"),
        ({"labels": {**OURS, names.LABEL_JOB_NAME: "other"}}, "stays"),
        ({"labels": {**OURS, names.LABEL_MANAGED_BY: "Helm"}}, "stays"),
        (
            {"labels": OURS, "ownerReferences": [owner("other", "StatefulSet", "checkpoints")]},
            "stays",
        ),
        ({"labels": OURS, "ownerReferences": [owner("other", name="other")]}, "stays"),
    ],
)
def test_existing_claim_is_used_only_if_it_was_created_for_a_job_of_that_name(
    metadata: dict[str, Any], conflict: str
) -> None:
    claim, job = {"metadata": {"name": "checkpoints-lm", **metadata}}, parse_job(a_manifest())
    if not conflict:
        check_claim(job, claim)
        return
    with pytest.raises(BlockedError, match=r"^PersistentVolumeClaim checkpoints-lm ") as blocked:
        check_claim(job, claim)
    passes = blocked.value.judgement is Judgement.TROUBLE
    assert ("passes" if passes else "stays") == conflict
    assert blocked.value.words.startswith("the API server refuses: PersistentVolumeClaim ")
