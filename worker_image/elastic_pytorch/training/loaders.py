"""Finds the ElasticSampler or ElasticStream behind a loader."""

from typing import Any

from elastic_pytorch.training.sampler import ElasticSampler
from elastic_pytorch.training.streams.loader import StreamLoader
from elastic_pytorch.training.streams.stream import ElasticStream

# The attributes by which wrappers refer to the loader: Accelerate's, torch_xla's, tqdm, and
# scripts' own.
INNER_LOADERS = ("base_dataloader", "dataloader", "_loader", "loader", "iterable")
INNER_SAMPLERS = ("batch_sampler", "sampler", "_sampler")


def stream_of(loader: Any) -> ElasticStream | None:
    inner = _unwrapped(loader)
    return inner.stream if isinstance(inner, StreamLoader) else None


def sampler_of(loader: Any) -> ElasticSampler:
    """Returns the sampler whose batches a loader gives, each once and in order.

    Raises a TypeError if there is none, and a RuntimeError if a wrapper changes the batches.
    """
    inner = _unwrapped(loader)
    if isinstance(inner, StreamLoader):
        raise TypeError(
            "a StreamLoader is for elastic.steps, or for a loop of your own: here, "
            "give a DataLoader with an ElasticSampler"
        )
    if inner is None:
        raise TypeError(
            "steps needs a DataLoader(dataset, batch_sampler=ElasticSampler(...)), "
            f"or a StreamLoader(ElasticStream(...)), not a {type(loader).__name__}"
        )
    sampler = behind = inner.batch_sampler
    while not isinstance(behind, ElasticSampler):
        behind = _first(behind, INNER_SAMPLERS)
        if behind is None:
            raise TypeError(
                f"the loader's batch_sampler is a {type(sampler).__name__}: "
                "steps needs an ElasticSampler there"
            )
    if behind is not sampler:
        kind = type(sampler)
        raise RuntimeError(
            f"{kind.__module__}.{kind.__qualname__} stands between the loader and its "
            "ElasticSampler, which gives each rank its share already: "
            "a second sharding leaves samples out. Give steps the loader as it was made: "
            "not the one that Accelerate's prepare returns; in Lightning, "
            "with Trainer(use_distributed_sampler=False)"
        )
    if getattr(inner, "in_order", True) is False:
        raise RuntimeError(
            "the loader is made with in_order=False: a batch then meets the weight of another one"
        )
    return sampler


def _unwrapped(loader: Any) -> Any:
    """The DataLoader or StreamLoader behind wrappers; None: there is none."""
    while not (
        loader is None or isinstance(loader, StreamLoader) or hasattr(loader, "batch_sampler")
    ):
        loader = _first(loader, INNER_LOADERS)
    return loader


def _first(wrapper: Any, names: tuple[str, ...]) -> Any:
    return next(
        (inner for name in names if (inner := getattr(wrapper, name, None)) is not None), None
    )
