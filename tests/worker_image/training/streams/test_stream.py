"""What an ElasticStream keeps, and what it and its loader refuse."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
from elastic_pytorch.training.loaders import sampler_of, stream_of
from elastic_pytorch.training.streams.loader import StreamLoader
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from tests.worker_image.training.streams.ranks import as_list, run_ranks

pytestmark = pytest.mark.torch


def read(shard: int) -> range:
    return range(10 * shard, 10 * shard + 10)


def stream(shards: Any = range(4), batch_size: int = 6, **options: Any) -> elastic.ElasticStream:
    return elastic.ElasticStream(shards, options.pop("read", read), batch_size, **options)


def loader(of: elastic.ElasticStream, **options: Any) -> StreamLoader:
    return of.loader(collate_fn=as_list, **options)


def take(of: elastic.ElasticStream, batches: Any, steps: int) -> list[list[int]]:
    taken = []
    for _ in range(steps):
        taken.append(next(batches))
        with of.part() as part:
            assert part.weight == 1
        of.advance()
    return taken


@pytest.mark.parametrize(("batch_size", "steps"), [(6, 4), (11, 2)])
def test_another_stream_goes_on_at_the_place(batch_size: int, steps: int) -> None:
    first, second = stream(), stream(batch_size=batch_size)
    begun = take(first, iter(loader(first)), 3)
    second.load_state_dict(first.state_dict())
    assert (second.epoch, second.samples) == (0, 18)
    rest = take(second, iter(loader(second)), steps)
    assert sorted(sample for batch in begun + rest for sample in batch) == list(range(40))
    assert (second.epoch, second.samples) == (1, 0)


def test_reading_ahead_does_not_move_the_place() -> None:
    of = stream()
    before = of.state_dict()
    batches = iter(loader(of))
    next(batches)
    next(batches)
    assert (of.state_dict()["taken"], of.epoch) == (before["taken"], 0)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"shards": range(5)}, "shards was 4 and is 5 now"),
        ({"shards": range(1, 5)}, "checksum of the shards was"),
        ({"seed": 2}, "seed was 0 and is 2 now"),
        ({"shuffle": False}, "shuffle was True and is False now"),
        ({"shuffle_block": 3}, "shuffle_block was 0 and is 3 now"),
    ],
)
def test_the_place_in_another_stream_is_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        stream(**changed).load_state_dict(stream().state_dict())


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"shards": Stream()}, TypeError, "not a Stream. Of a stream that is read as a whole"),
        ({"shards": TensorDataset(torch.arange(3))}, TypeError, "index is for an ElasticSampler"),
        ({"shards": "s3://bucket/{0..9}.tar"}, TypeError, "must be a list of names, .*not a str"),
        ({"shards": iter([1])}, TypeError, "not a list_iterator"),
        ({"shards": [object()]}, TypeError, "a shard is a name, .* not a object: let `read` open"),
        ({"shards": []}, ValueError, "there are no shards"),
        ({"read": 3}, TypeError, "must be a function of a shard that returns its samples, not a"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1, not 0"),
        ({"micro_batch_size": 0}, ValueError, "micro_batch_size must be at least 1, not 0"),
        ({"shuffle_block": -1}, ValueError, "shuffle_block must be at least 0, not -1"),
    ],
)
def test_what_is_no_stream_is_refused(
    arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        stream(**arguments)


def test_paths_are_names() -> None:
    stream(["/data/a", "/data/b"]).load_state_dict(
        stream([Path("/data/a"), Path("/data/b")]).state_dict()
    )


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"batch_size": 3}, TypeError, "batch_size: the ElasticStream says so, and not its loader"),
        ({"shuffle": True}, TypeError, "shuffle: the ElasticStream"),
        (
            {"persistent_workers": True, "num_workers": 1},
            ValueError,
            "persistent_workers=True: workers get their shards",
        ),
        (
            {"in_order": False},
            ValueError,
            "in_order=False: a batch would then meet the weight of another one",
        ),
    ],
)
def test_options_that_are_the_streams_are_refused(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        loader(stream(), **options)


def test_a_loader_is_for_an_elastic_stream() -> None:
    dataset: Any = Stream()
    with pytest.raises(TypeError, match="StreamLoader needs an ElasticStream, not a Stream"):
        StreamLoader(dataset)


def test_a_stream_without_samples_is_an_error() -> None:
    with pytest.raises(ValueError, match="none of the 3 shards has a sample"):
        list(loader(stream(range(3), read=lambda shard: [])))


def test_what_the_loop_forgets_is_an_error() -> None:
    of = stream(micro_batch_size=2)
    with pytest.raises(RuntimeError, match="this step has no batch of the stream"):
        of.advance()
    batches = iter(loader(of))
    next(batches)
    with pytest.raises(RuntimeError, match="the weight of a part was not used"), of.part():
        pass
    with of.part() as part:
        assert (part.weight, part.last, part.samples, part.parts) == (
            pytest.approx(1 / 3),
            False,
            2,
            3,
        )
    with pytest.raises(RuntimeError, match="the step has 3 micro-batches, and only 1 are done"):
        of.advance()
    with pytest.raises(RuntimeError, match="it uses number 2, of 1 given"), of.part():
        pass
    of.load_state_dict(of.state_dict())
    with pytest.raises(
        RuntimeError, match="another place in the data was loaded while this iterator was in use"
    ):
        next(batches)


def test_an_iterator_ends_when_another_one_is_begun() -> None:
    of = stream()
    batches = iter(loader(of))
    take(of, batches, 1)
    next(iter(loader(of)))
    with pytest.raises(RuntimeError, match="another iterator of a stream begun: make a new one"):
        take(of, batches, 1)
    rest = take(of, iter(loader(of)), 6)
    assert (of.epoch, of.samples, len(rest)) == (1, 0, 6)


def test_a_step_that_is_not_committed_is_an_error() -> None:
    of = stream()
    batches = iter(loader(of))
    next(batches)
    with of.part() as part:
        assert part.weight == 1
    next(batches)
    with pytest.raises(RuntimeError, match="the step before is done but not committed"), of.part():
        pass


class Bar:
    """As a progress bar wraps a loader."""

    def __init__(self, iterable: Any) -> None:
        self.iterable = iterable


def test_steps_finds_the_stream_of_a_loader() -> None:
    of = stream()
    assert stream_of(loader(of)) is of
    assert stream_of(Bar(loader(of))) is of
    assert stream_of(DataLoader([1, 2])) is stream_of([]) is None
    with pytest.raises(
        TypeError, match=r"a StreamLoader is for elastic\.steps, or for a loop of your own"
    ):
        sampler_of(loader(of))
    with pytest.raises(TypeError, match=r"or a StreamLoader\(ElasticStream\(...\)\), not a list"):
        sampler_of([])


def test_ranks_with_different_settings_are_refused() -> None:
    numbers = iter(range(2))
    with pytest.raises(
        RuntimeError, match="ranks 0 and 1 have different streams: the seed differs"
    ):
        run_ranks(
            2, lambda: stream(seed=next(numbers)), lambda _, its: list(its), collate_fn=as_list
        )


def test_ranks_of_one_model_replica_get_the_same_samples() -> None:
    def all_of(of: elastic.ElasticStream, its: StreamLoader) -> list[list[int]]:
        batches = iter(its)
        return [next(batches) for _ in range(4)]

    first, second, third, fourth = run_ranks(4, stream, all_of, copies=2, collate_fn=as_list)
    assert first == second
    assert third == fourth
    assert not {sample for batch in first for sample in batch} & {
        sample for batch in third for sample in batch
    }


def test_ranks_of_one_model_replica_that_read_differently_are_refused() -> None:
    lengths = iter([10, 9])

    def make() -> elastic.ElasticStream:
        length = next(lengths)
        return stream(range(1), 6, read=lambda shard: range(length))

    with pytest.raises(
        RuntimeError,
        match="two ranks that compute the samples of data-parallel rank 0 together have read "
        "differently",
    ):
        run_ranks(2, make, lambda _, its: list(its), copies=2, collate_fn=as_list)
