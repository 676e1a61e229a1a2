"""The demo's cluster without a cluster: real processes train, one is killed, the job is scaled and deleted."""

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from demo.__main__ import local_manifest
from demo.acts import trains_with
from demo.local_cluster import LocalCluster
from measure.commands import CommandFailed
from measure.watcher import Watcher, background

pytestmark = [pytest.mark.process, pytest.mark.torch]

WAIT_SECONDS = 180.0


async def test_the_demo_can_apply_watch_kill_scale_and_delete_a_job(tmp_path: Path) -> None:
    async with LocalCluster.started(tmp_path) as cluster:
        watcher = Watcher(cluster, cluster.namespace, "char-lm")
        await cluster.kubectl("apply", "-f", "-", stdin=json.dumps(local_manifest(100_000)))
        async with background(watcher.run()):
            await watcher.until(lambda: trains_with(watcher.job, 3), seconds=WAIT_SECONDS, what="three workers to train")
            with cluster.page() as url:
                shown = await asyncio.to_thread(read, f"{url}jobs/{cluster.namespace}/char-lm")
                assert (shown["row"]["workers"], shown["row"]["world"]) == ("3/3", 3)
                assert (await asyncio.to_thread(read, f"{url}logs/{cluster.namespace}/char-lm?index=0"))["lines"]
            victim = watcher.job.members[-1].name
            await cluster.kubectl("delete", "pod", victim, "--grace-period=0", "--force", "--wait=false")
            await watcher.until(lambda: victim not in watcher.pods, seconds=WAIT_SECONDS, what="the pod to be gone")
            await cluster.kubectl("scale", "epj/char-lm", "--replicas=2")
            await watcher.until(lambda: trains_with(watcher.job, 2), seconds=WAIT_SECONDS, what="two workers to train")
            assert f"{victim} | " in cluster.last_words()
            await cluster.kubectl("delete", "epj/char-lm", "--ignore-not-found", "--cascade=foreground")
            await cluster.kubectl("wait", "pod", "--for=delete")
            await watcher.until(
                lambda: watcher.deleted and not watcher.pods, seconds=WAIT_SECONDS, what="the deletion to be seen"
            )
        assert watcher.broken is None


async def test_a_job_that_is_not_there_is_deleted_and_a_command_that_the_demo_has_not_is_refused(tmp_path: Path) -> None:
    async with LocalCluster.started(tmp_path) as cluster:
        await cluster.kubectl("delete", "epj/char-lm", "--ignore-not-found")
        with pytest.raises(CommandFailed, match="kubectl drain node: unknown in local mode"):
            await cluster.kubectl("drain", "node")
        async with asyncio.timeout(WAIT_SECONDS):
            await cluster.kubectl("wait", "pod", "--for=delete")


def read(url: str) -> Any:
    with urlopen(url, timeout=WAIT_SECONDS) as answer:
        return json.load(answer)
