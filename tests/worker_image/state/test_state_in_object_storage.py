"""A State whose checkpoints are objects: written beside the training, read by the next group."""

import shutil
from pathlib import Path

import elastic_pytorch as elastic
import pytest
import torch
from elastic_pytorch.group.rank_group import RankGroup
from elastic_pytorch.state_format.payload import payload_chunks
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage import checkpoint_folder
from elastic_pytorch.storage.checkpoint_folder import by_name, claimed
from torch import nn

from tests.worker_image.object_storage import Bucket, s3_error
from tests.worker_image.state.test_restore import find_newest
from tests.worker_image.torch_group import run_alone

pytestmark = [pytest.mark.torch, pytest.mark.process]


def train_here(url: str, until: int) -> tuple[int, bool, float, float]:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    state = elastic.State(url, model=model, optimizer=optimizer, best=9.0)
    began = state.restore()
    while state.step < until:
        model(torch.ones(3)).sum().backward()
        optimizer.step()
        state.best = float(state.step)
        state.commit()
    return (
        began,
        state.flush(),
        state.best,
        sum(float(p.detach().sum()) for p in model.parameters()),
    )


def train(url: str, until: int) -> tuple[int, bool, float, float]:
    """Trains in a new process: its beginning, whether all is saved, the best, the weights."""
    trained: tuple[int, bool, float, float] = run_alone(train_here, url, until)
    return trained


def test_a_training_goes_on_from_the_last_object(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert train(bucket.url, 5)[:3] == (0, True, 4.0)
    assert train(bucket.url, 7)[:3] == (5, True, 6.0), (
        "another process, which has nothing but the bucket"
    )
    assert by_name(bucket.url)[0].version == StateVersion(2, 7)
    assert claimed(bucket.url) == 2
    assert list(tmp_path.iterdir()) == [], "a URL makes no folder"


def test_it_ends_as_one_in_a_folder(bucket: Bucket, tmp_path: Path) -> None:
    """The bytes are a file's: a checkpoint may be copied between a folder and a bucket."""
    folder = tmp_path / "run"
    train(str(folder), 5)
    for version, path in by_name(folder):
        bucket.server.put(f"/{bucket.name}/run/{path.name}", path.read_bytes())
        assert version.generation == 1
    assert train(bucket.url, 9) == train(str(folder), 9)
    newest = by_name(bucket.url)[0].path.name
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / newest).write_bytes(bucket.server.get(f"/{bucket.name}/run/{newest}"))
    assert train(str(folder), 11)[0] == 9


def test_a_bucket_that_cannot_be_read_is_no_beginning(bucket: Bucket) -> None:
    bucket.proxy.fault = lambda _: s3_error(403, "AccessDenied")
    state = elastic.State(bucket.url, model=nn.Linear(1, 1))
    with pytest.raises(PermissionError, match=f"bucket {bucket.name} refuses these credentials"):
        state.restore()
    state.close()


def test_a_group_that_meets_another_takes_the_next_generation(bucket: Bucket) -> None:
    """Between a group's look and its claim, another group claims the same generation."""
    checkpoint_folder.write(bucket.url, StateVersion(1, 4), payload_chunks({"step": 4}), keep=1)
    left = iter([None])

    def claim_first(request: object) -> None:
        if request.kind == "put":
            for _ in left:
                checkpoint_folder.claim(bucket.url, 2)

    bucket.proxy.fault = claim_first
    assert find_newest(RankGroup(), None, bucket.url, dict).generation == 3


def test_load_reads_the_newest_or_the_one_that_is_named(
    bucket: Bucket, log: pytest.LogCaptureFixture
) -> None:
    train(bucket.url, 3)
    loaded = elastic.load(bucket.url)
    assert (loaded["step"], loaded["best"]) == (3, 2.0)
    assert loaded["model"]["weight"].shape == (2, 3)
    newest = by_name(bucket.url)[0].path
    assert torch.equal(elastic.load(str(newest))["model"]["weight"], loaded["model"]["weight"])
    bucket.server.put(f"/{bucket.name}/run/checkpoint-g000009-s000000009.elastic", b"hello")
    assert elastic.load(bucket.url)["step"] == 3
    assert "is skipped: foreign" in log.text


def test_load_says_what_there_is_instead(bucket: Bucket) -> None:
    with pytest.raises(FileNotFoundError, match=f"there is no checkpoint in {bucket.url}"):
        elastic.load(bucket.url)
    with pytest.raises(FileNotFoundError):
        elastic.load(f"{bucket.url}/checkpoint-g000001-s000000001.elastic")
    checkpoint_folder.write(f"{bucket.url}/small", StateVersion(1, 1), payload_chunks({}), keep=1)
    with pytest.raises(ValueError, match="has no checkpoint itself, but the trainings small"):
        elastic.load(bucket.url)
    bucket.server.put(f"/{bucket.name}/run/checkpoint-g000009-s000000009.elastic", b"hello")
    with pytest.raises(
        ValueError, match=r"is whole: checkpoint-g000009-s000000009\.elastic: foreign"
    ):
        elastic.load(bucket.url)
