import asyncio
from pathlib import Path

import pytest
import yaml
from demo import __main__ as demo
from measure.kind_cluster import example

from tests.local.faults.counting_cluster import CountingCluster


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastic_pytorch_local.faults.watcher.RETRY_SECONDS", 0.01)
    monkeypatch.setattr("elastic_pytorch_local.faults.watcher.LOOK_SECONDS", 0.005)
    monkeypatch.setattr("elastic_pytorch_local.faults.acts.SETTLE_SECONDS", 0.05)
    monkeypatch.setattr(demo, "LINE_SECONDS", 0.05)


async def show(cluster: CountingCluster) -> int:
    return await demo.show(cluster, example(demo.EXAMPLES["plain"], steps=demo.STEPS))


async def test_plays_all_acts_and_deletes_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = CountingCluster()
    status, text = await show(cluster), capsys.readouterr().out
    found = (status, cluster.commands[:2], cluster.commands[-1])
    assert found == (0, ["delete", "apply"], "delete")
    assert "Running: step " in text
    told = [
        "a rank is killed",
        "a pod is lost",
        "its replacement joins",
        "it grows",
        "it shrinks",
        "No step was repeated",
    ]
    assert not [line for line in told if line not in text]


async def test_plays_them_on_a_job_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "job.yaml").write_text(
        demo.EXAMPLES["plain"].read_text().replace("name: char-lm", "name: mine")
    )
    manifest = demo.parse_manifest(["--job", str(file)])
    status = await demo.show(cluster := CountingCluster(), manifest)
    assert (status, cluster.commands[:2]) == (
        0,
        ["delete", "apply"],
    ) and "mine is deleted" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text", ["a: [", "kind: List", yaml.dump_all([{"spec": {}}, {"spec": {}}])]
)
def test_refuses_a_file_without_one_job(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "job.yaml").write_text(text)
    with pytest.raises(SystemExit):
        demo.parse_manifest(["--job", str(file)])
    assert "does not hold one ElasticPyTorchJob" in capsys.readouterr().err


async def test_demo_that_fails_leaves_the_job_and_says_where_to_look(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, text = await show(cluster := CountingCluster(fail_at=10)), capsys.readouterr().out
    assert (status, cluster.commands.count("delete")) == (1, 1), "the failed job is left"
    assert "ValueError: boom" in text and "kubectl describe epj/char-lm" in text


async def test_an_interrupt_deletes_the_job() -> None:
    cluster = CountingCluster()
    playing = asyncio.create_task(show(cluster))
    async with asyncio.timeout(30):
        while len(cluster.pods) < 3:
            await asyncio.sleep(0.01)
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert (cluster.commands[-1], cluster.pods) == ("delete", [])
