"""Groups of any sizes, one after the other, share the place in a stream of uneven shards."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from elastic_pytorch.training.streams.loader import StreamLoader
from elastic_pytorch.training.streams.stream import ElasticStream
from hypothesis import example, given
from hypothesis import strategies as st

from tests.worker_image.training.streams.ranks import as_list, run_ranks

pytestmark = pytest.mark.torch

MOST_STEPS = 2000


class Life(NamedTuple):
    """A group: its ranks, after how many steps it ends, and how many of these are not committed."""

    ranks: int
    steps: int
    lost: int


class Outcome(NamedTuple):
    """What a rank has seen of each step, in the order of the steps, and the place after each.

    Attributes:
        steps: the epoch, and the samples of each micro-batch with the weight of each.
        states: before the first step, and after each.
    """

    steps: list[tuple[int, list[tuple[list[Any], float]]]]
    states: list[dict[str, Any]]


def plain(state: dict[str, Any]) -> dict[str, Any]:
    return {**state, "status": state["status"].tolist()}


def live(
    stream: ElasticStream,
    loader: StreamLoader,
    state: dict[str, Any] | None,
    steps: int,
    epochs: int,
) -> Outcome:
    if state is not None:
        stream.load_state_dict(state)
    outcome = Outcome([], [stream.state_dict()])
    for epoch in stream.epochs(epochs):
        parts: list[tuple[list[Any], float]] = []
        ends = False
        for batch in loader:
            assert not ends, "no step comes after the one that ends an epoch"
            with stream.part() as part:
                parts.append((batch if part.samples else [], part.weight))
                assert part.samples in (0, len(batch))
                ends = part.last and stream.ends_epoch
            if part.last:
                stream.advance()
                outcome.steps.append((epoch, parts))
                outcome.states.append(stream.state_dict())
                parts = []
            if len(outcome.steps) == steps:
                return outcome
        assert ends
    return outcome


def check_weights(ranks: list[Outcome], batch_size: int) -> None:
    """Ranks do as many steps and micro-batches; weighted losses average to the step's mean."""
    assert len({len(rank.steps) for rank in ranks}) == 1
    for step in zip(*(rank.steps for rank in ranks), strict=True):
        assert len({(epoch, len(parts)) for epoch, parts in step}) == 1
        shares = [
            (len(batch), weight / len(batch) / len(ranks))
            for _, parts in step
            for batch, weight in parts
            if len(batch)
        ]
        total = sum(count for count, _ in shares)
        assert 1 <= total <= batch_size
        assert all(share == pytest.approx(1 / total) for _, share in shares)


LIVES = st.lists(
    st.builds(Life, st.integers(1, 5), st.integers(1, 12), st.integers(0, 3)),
    min_size=1,
    max_size=8,
)


@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=12).filter(any),
    lives=LIVES,
    batch_size=st.integers(1, 12),
    micro_batch_size=st.none() | st.integers(1, 4),
    shuffle_block=st.sampled_from([0, 1, 4, 100]),
    seeks=st.booleans(),
    seed=st.integers(0, 3),
)
# A rank that has no sample needs the only one there is for its idle batch.
@example(
    lengths=[1],
    lives=[Life(2, 1, 0)],
    batch_size=2,
    micro_batch_size=None,
    shuffle_block=0,
    seeks=True,
    seed=0,
)
def test_each_sample_counts_once_an_epoch_whatever_the_groups_are(
    lengths: list[int],
    lives: list[Life],
    batch_size: int,
    micro_batch_size: int | None,
    shuffle_block: int,
    seeks: bool,
    seed: int,
) -> None:
    def read(shard: int) -> Iterator[tuple[int, int]]:
        return ((shard, sample) for sample in range(lengths[shard]))

    def read_from(shard: int, start: int = 0) -> Iterator[tuple[int, int]]:
        return ((shard, sample) for sample in range(start, lengths[shard]))

    def make() -> ElasticStream:
        return ElasticStream(
            range(len(lengths)),
            read_from if seeks else read,
            batch_size,
            micro_batch_size=micro_batch_size,
            shuffle_block=shuffle_block,
            seed=seed,
            seed_random=False,
        )

    epochs, state = 2, None
    seen: Counter[tuple[int, tuple[int, int]]] = Counter()
    for life in [*lives, Life(3, MOST_STEPS, 0)]:
        ranks = run_ranks(
            life.ranks,
            make,
            lambda stream, loader, life=life, state=state: live(
                stream, loader, state, life.steps, epochs
            ),
            collate_fn=as_list,
        )
        check_weights(ranks, batch_size)
        counted = max(0, len(ranks[0].steps) - life.lost)
        states = [plain(rank.states[counted]) for rank in ranks]
        assert states == states[:1] * life.ranks, "all ranks know the place of all"
        state = ranks[0].states[counted]
        for rank in ranks:
            seen.update(
                (epoch, sample)
                for epoch, parts in rank.steps[:counted]
                for batch, _ in parts
                for sample in batch
            )
    assert state["epoch"] == epochs
    every = [(shard, sample) for shard, length in enumerate(lengths) for sample in range(length)]
    assert seen == {(epoch, sample): 1 for epoch in range(epochs) for sample in every}
