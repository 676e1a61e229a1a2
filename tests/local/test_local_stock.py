"""Stock torchrun under the operator in local mode: nothing in the workers is ours."""

from pathlib import Path

import pytest

from tests.local.local_jobs import local_job

pytestmark = pytest.mark.process

ENDLESS = ("--steps", "100000")


async def test_job_of_stock_workers_completes(tmp_path: Path) -> None:
    async with local_job(tmp_path, "--steps", "20") as job:
        assert await job.until_ended() == "Complete"
        assert sorted(job.steps(2)) == list(range(1, 21))
        assert "elastic_pytorch.agent" not in job.text
        status = job.status
        assert (status["round"], status["failures"]) == (1, 0)
        assert [worker["state"] for worker in status["workers"]] == ["Succeeded", "Succeeded"]
        await job.until(lambda: not job.pods("store"), "the store's end")


@pytest.mark.long
async def test_killed_worker_is_replaced_in_the_same_rendezvous(tmp_path: Path) -> None:
    async with local_job(tmp_path, *ENDLESS, replicas=3) as job:
        await job.until(lambda: bool(job.steps(3)), "a world of 3")
        [store] = job.pods("store")
        victim = job.pods()[0]["metadata"]["name"]
        job.kill(victim)
        await job.until(
            lambda: any(event.startswith("WorkerLost") for event in job.events()), "the loss"
        )
        before = len(job.steps(3))
        await job.until(lambda: len(job.steps(3)) > before + 5, "a world of 3 again")
        status = job.status
        assert (status["worldSize"], status["failures"], status["round"]) == (3, 0, 3)
        assert victim not in [pod["metadata"]["name"] for pod in job.pods()]
        assert [pod["metadata"]["name"] for pod in job.pods("store")] == [store["metadata"]["name"]]


@pytest.mark.long
async def test_survivors_of_a_dead_node_do_not_hang_when_its_replacement_comes(
    tmp_path: Path,
) -> None:
    async with local_job(tmp_path, *ENDLESS, replicas=3, grace_seconds=300) as job:
        await job.until(lambda: bool(job.steps(3)), "a world of 3")
        victim = job.pods()[1]
        job.freeze(victim["metadata"]["name"])
        node = job.operator.cluster._get("Node", "", victim["spec"]["nodeName"])
        node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
        job.operator.cluster._changed("Node", "MODIFIED", node)
        # As its taint does.
        job.operator.cluster.begin_deletion(
            victim["metadata"]["namespace"], victim["metadata"]["name"]
        )
        before = len(job.steps(3))
        await job.until(lambda: len(job.steps(3)) > before + 5, "a world of 3 again")
        assert job.status["failures"] == 0


@pytest.mark.long
async def test_scaled_up_and_down(tmp_path: Path) -> None:
    async with local_job(tmp_path, *ENDLESS) as job:
        await job.until(lambda: bool(job.steps(2)), "a world of 2")
        job.operator.cluster.scale_job("stock", 3)
        await job.until(lambda: bool(job.steps(3)), "a world of 3")
        before = len(job.steps(2))
        job.operator.cluster.scale_job("stock", 2)
        await job.until(lambda: len(job.steps(2)) > before + 5, "a world of 2 again")
        assert [
            pod["metadata"]["labels"]["elasticpytorch.dev/worker-index"] for pod in job.pods()
        ] == ["0", "1"]
        assert job.status["failures"] == 0
        assert any(event.startswith("ScaledDown") for event in job.events())


@pytest.mark.long
async def test_script_that_raises_fails_the_job_with_its_words(tmp_path: Path) -> None:
    async with local_job(tmp_path, "--fail-at", "3", failurePolicy={"maxFailures": 1}) as job:
        assert await job.until_ended() == "Failed"
        assert "ValueError: told to fail at step 3" in job.failed
        assert "ChildFailedError" not in job.failed
        cause = job.status["rootCause"]
        assert cause["rank"] == 1
        assert cause["exitCode"] in (1, 134), (
            "torch may abort a process at its end whose peers go at the same time"
        )
        starts = [line for line in job.text.splitlines() if line.startswith("INIT rank=1")]
        assert len(starts) == 2, "torchrun itself has started the script again, once"


@pytest.mark.long
async def test_lost_store_costs_a_new_rendezvous_and_no_failure(tmp_path: Path) -> None:
    async with local_job(tmp_path, "--steps", "150", "--checkpoint-every", "1") as job:
        await job.until(lambda: len(job.steps(2)) > 20, "some steps")
        done = max(job.steps(2))
        job.kill(job.pods("store")[0]["metadata"]["name"])
        assert await job.until_ended() == "Complete"
        assert sorted(set(job.steps(2))) == list(range(1, 151))
        assert len(job.steps(2)) <= 152, (
            f"went on from its checkpoint, which it had left at step {done} or later"
        )
        assert job.status["failures"] == 0
        assert any(event.startswith("RendezvousOver") for event in job.events())


async def test_misspelt_option_fails_the_job(tmp_path: Path) -> None:
    container = {"args": ["--no-such-option", "x.py"]}
    async with local_job(
        tmp_path, container=container, replicas=1, failurePolicy={"maxFailures": 0}
    ) as job:
        assert await job.until_ended() == "Failed"
        assert "no-such-option" in job.failed
