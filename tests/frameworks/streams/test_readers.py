"""Shards of other libraries in an ElasticStream: each sample once, whatever the group's sizes.

The functions that begin with `shards_of` are the recipes of docs/use/data.md.
"""

import io
import json
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import pytest

from tests.worker_image.torch_group import run_group

pytestmark = [pytest.mark.torch, pytest.mark.process, pytest.mark.long]

LENGTHS = (13, 4, 21, 9, 1, 17, 30)
Recipe = Callable[[Path], tuple[Iterable[Any], Callable[..., Any]]]


def sample(shard: int, number: int) -> int:
    return 100 * shard + number


EVERY = Counter(
    sample(shard, number) for shard, length in enumerate(LENGTHS) for number in range(length)
)


def write_json(folder: Path) -> None:
    for shard, length in enumerate(LENGTHS):
        lines = [json.dumps({"number": sample(shard, number)}) for number in range(length)]
        (folder / f"{shard}.jsonl").write_text("\n".join(lines) + "\n")


def write_tars(folder: Path) -> None:
    for shard, length in enumerate(LENGTHS):
        with tarfile.open(folder / f"{shard}.tar", "w") as tar:
            for number in range(length):
                content = json.dumps({"number": sample(shard, number)}).encode()
                info = tarfile.TarInfo(f"{number:06}.json")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


def write_mds(folder: Path) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=str(folder / "mds"), columns={"number": "int"}, size_limit=300) as writer:
        for number in EVERY:
            writer.write({"number": number})


def shards_of_hugging_face(folder: Path) -> tuple[Iterable[Any], Callable[..., Any]]:
    from datasets import load_dataset

    files = sorted(map(str, folder.glob("*.jsonl")))
    data = load_dataset(
        "json", data_files=files, split="train", streaming=True, cache_dir=str(folder / "cache")
    )

    def read(shard: int, start: int = 0) -> Iterable[Any]:
        one = data.shard(data.num_shards, shard)
        return one.skip(start) if start else one

    return range(data.num_shards), read


def shards_of_webdataset(folder: Path) -> tuple[Iterable[Any], Callable[..., Any]]:
    import webdataset

    def read(url: str) -> Iterable[Any]:
        samples = webdataset.WebDataset(
            url, shardshuffle=False, nodesplitter=None, empty_check=False
        ).decode()
        return samples.map(lambda each: each["json"])

    return sorted(map(str, folder.glob("*.tar"))), read


def shards_of_mosaicml(folder: Path) -> tuple[Iterable[Any], Callable[..., Any]]:
    from streaming import LocalDataset

    data = LocalDataset(local=str(folder / "mds"))

    def read(shard: int, start: int = 0) -> Iterable[Any]:
        return (data.shards[shard][number] for number in range(start, data.shards[shard].samples))

    return range(len(data.shards)), read


def shards_of_torchdata(folder: Path) -> tuple[Iterable[Any], Callable[..., Any]]:
    from torchdata.nodes import IterableWrapper, Loader, Mapper

    def read(name: str) -> Iterable[Any]:
        return Loader(Mapper(IterableWrapper(Path(name).open()), json.loads))

    return sorted(map(str, folder.glob("*.jsonl"))), read


RECIPES: dict[str, tuple[str, Callable[[Path], None], Recipe]] = {
    "hugging face": ("datasets", write_json, shards_of_hugging_face),
    "webdataset": ("webdataset", write_tars, shards_of_webdataset),
    "mosaicml": ("streaming", write_mds, shards_of_mosaicml),
    "torchdata": ("torchdata", write_json, shards_of_torchdata),
}


def numbers(samples: list[dict[str, int]]) -> list[int]:
    return [int(each["number"]) for each in samples]


def some_steps(
    folder: Path, recipe: str, workers: int, state: dict[str, Any] | None, steps: int
) -> tuple[list[int], dict[str, Any], int]:
    shards, read = RECIPES[recipe][2](folder)
    stream = elastic.ElasticStream(list(shards), read, batch_size=6, seed=4, shuffle_block=4)
    if state is not None:
        stream.load_state_dict(state)
    # Functions within functions are not for the processes that a server forks, as the tests' do.
    loader = stream.loader(
        collate_fn=numbers, num_workers=workers, multiprocessing_context="fork" if workers else None
    )
    seen: list[int] = []
    for done, batch in enumerate(loader):
        with stream.part() as part:
            seen += batch if part.weight else []
        stream.advance()
        if done + 1 == steps:
            break
    return seen, stream.state_dict(), stream.epoch


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("recipe", RECIPES)
def test_each_sample_comes_once_whatever_the_group(
    tmp_path: Path, recipe: str, workers: int
) -> None:
    package, write, _ = RECIPES[recipe]
    pytest.importorskip(package, reason=f"needs {package}")
    write(tmp_path)
    seen: Counter[int] = Counter()
    state, epochs = None, {0}
    for world_size, steps in ((3, 3), (2, 3), (4, 2), (3, 1000)):
        outcomes = run_group(world_size, some_steps, tmp_path, recipe, workers, state, steps)
        seen.update(number for numbers_, _, _ in outcomes for number in numbers_)
        state, epochs = outcomes[0][1], {epoch for _, _, epoch in outcomes}
    assert epochs == {1}
    assert seen == EVERY


@pytest.mark.parametrize("package", ["datasets", "webdataset", "streaming", "torchdata"])
def test_a_stream_as_a_whole_is_refused(tmp_path: Path, package: str) -> None:
    package_ = pytest.importorskip(package, reason=f"needs {package}")
    write_json(tmp_path)
    write_tars(tmp_path)
    stream: Any
    if package == "datasets":
        from datasets import load_dataset

        stream = load_dataset(
            "json",
            data_files=sorted(map(str, tmp_path.glob("*.jsonl"))),
            split="train",
            streaming=True,
            cache_dir=str(tmp_path),
        )
    elif package == "webdataset":
        import webdataset

        stream = webdataset.WebDataset(sorted(map(str, tmp_path.glob("*.tar"))), shardshuffle=False)
    elif package == "streaming":
        write_mds(tmp_path)
        stream = package_.LocalDataset(local=str(tmp_path / "mds"))
    else:
        from torchdata.stateful_dataloader import StatefulDataLoader

        stream = StatefulDataLoader([1, 2])
    with pytest.raises(TypeError, match="shards must be a list of names, URLs or numbers"):
        elastic.ElasticStream(stream, lambda _: [], 6)
