import json
from pathlib import Path
from typing import NamedTuple

import elastic_pytorch as elastic
import pytest
from elastic_pytorch.object_url import Location, location_of
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_folder import by_name, write
from elastic_pytorch.storage.checkpoint_format import SHARDED
from elastic_pytorch.storage.places import place_at
from elastic_pytorch.storage.retention import (
    Keep,
    Retention,
    milestones,
    parse_keep,
    surplus,
    what_to_keep,
)
from elastic_pytorch.storage.sharded_folder import drafts_in
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.worker_image.object_storage import Bucket

# Of each multiple of 10 the first one at it or behind it counts: 10, 35 (of 20 and of 30), 40.
STEPS = [3, 9, 10, 11, 19, 35, 38, 40, 41]


@pytest.mark.parametrize(
    ("written", "found"),
    [
        pytest.param([(1, 9)], [], id="none before the first multiple"),
        pytest.param([(1, 10), (1, 11)], [(1, 10)], id="on a multiple"),
        pytest.param([(1, 9), (1, 12), (1, 19)], [(1, 12)], id="behind one"),
        pytest.param([(1, 35), (1, 38)], [(1, 35)], id="behind several, it is that of all"),
        pytest.param([(1, 12), (2, 14)], [(1, 12)], id="the next group goes on"),
        pytest.param(
            [(1, 12), (2, 11), (2, 13)],
            [(1, 12), (2, 11)],
            id="the next group has gone back and passes it once more",
        ),
    ],
)
def test_milestones(written: list[tuple[int, int]], found: list[tuple[int, int]]) -> None:
    assert sorted(milestones([StateVersion(*version) for version in written], 10)) == found


class Group(NamedTuple):
    """What one group writes.

    Attributes:
        back: how many of the newest checkpoints that are left it does not go on from, as they are
            damaged.
        strides: steps from one checkpoint to the next.
    """

    back: int
    strides: list[int]


GROUPS = st.builds(Group, st.integers(0, 2), st.lists(st.integers(1, 25), max_size=8))


@given(groups=st.lists(GROUPS, max_size=6), keep=st.integers(1, 3), every=st.integers(1, 20))
def test_milestones_stay_whatever_groups_come_and_go(
    groups: list[Group], keep: int, every: int
) -> None:
    ever: list[StateVersion] = []
    left: list[StateVersion] = []
    for generation, (back, strides) in enumerate(groups, 1):
        step = left[-1 - back].step if back < len(left) else 0
        for stride in strides:
            step += stride
            written = StateVersion(generation, step)
            ever.append(written)
            left.append(written)
            doomed = surplus(left, written, Retention(keep, every))
            left = [version for version in left if version not in doomed]
            assert set(left) == {*ever[-keep:], *milestones(ever, every)}, (
                "as if none had been deleted before"
            )
    if all(not group.back for group in groups):
        steps = [version.step for version in ever]
        for multiple in range(every, max(steps, default=0) + 1, every):
            assert next(step for step in steps if step >= multiple) in {
                version.step for version in left
            }


@pytest.mark.parametrize("every", [0, -1, 1.5, "10", True])
def test_bad_steps_are_refused_by_name(every: object, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match="^keep_every_steps must be a whole number of steps, at least 1, or None, "
        f"not {every!r}$",
    ):
        elastic.State(
            tmp_path, elastic.State.Options(keep_every_steps=every), model=nn.Linear(1, 1)
        )  # type: ignore[arg-type]
    elastic.State(tmp_path, model=nn.Linear(1, 1)).close()  # the name is free


@pytest.mark.parametrize("keep", [2, what_to_keep(2, None), what_to_keep(2, 10)])
def test_what_to_keep_travels_in_messages(keep: Keep) -> None:
    assert parse_keep(json.loads(json.dumps(keep))) == keep


@pytest.mark.parametrize(
    "told", [0, True, "2", None, 1.0, [2], [0, 1], [1, 0], [1, 2, 3], [True, 1], [1, "2"], {}]
)
def test_what_means_nothing_is_refused(told: object) -> None:
    with pytest.raises(ValueError, match="not what to keep"):
        parse_keep(told)


def write_sharded(folder: Location, version: StateVersion, keep: Keep) -> None:
    drafts = drafts_in(folder)
    token = drafts.begin(version)
    draft = drafts.location(version, token)
    place_at(draft).put("__0_0.distcp", [b"shard"], 5, lambda: None)
    drafts.publish(version, token, keep, lambda: write(draft, version, [b"rest"], keep=1))


def check_both(folder: Location) -> None:
    for step in STEPS:
        write(folder, StateVersion(1, step), [b"state"], Retention(2, 10))
        write_sharded(folder, StateVersion(1, step), Retention(2, 10))
    assert [found.version.step for found in by_name(folder)] == [41, 40, 35, 10]
    assert [version.step for version, _ in by_name(folder, SHARDED)] == [41, 40, 35, 10]
    write(folder, StateVersion(2, 44), [b"state"], 1)
    assert [found.version.step for found in by_name(folder)] == [44], (
        "a training that wants none keeps none"
    )


@pytest.mark.process
def test_in_a_folder(tmp_path: Path) -> None:
    check_both(tmp_path)


@pytest.mark.process
def test_in_a_bucket(bucket: Bucket) -> None:
    check_both(location_of(bucket.url))


@pytest.mark.process
def test_a_save_that_was_cut_short_is_no_milestone(bucket: Bucket) -> None:
    """It has shards but no file that lists them: a whole one of its multiple counts."""
    folder = location_of(bucket.url)
    write_sharded(folder, StateVersion(1, 9), Retention(1, 10))
    drafts = drafts_in(folder)
    cut = drafts.location(StateVersion(1, 10), drafts.begin(StateVersion(1, 10)))
    place_at(cut).put("__0_0.distcp", [b"shard"], 5, lambda: None)
    for step in (11, 12, 13):
        write_sharded(folder, StateVersion(1, step), Retention(1, 10))
    assert [version.step for version, _ in by_name(folder, SHARDED)] == [13, 11]


@pytest.mark.process
def test_milestones_cost_no_request_of_each_save(bucket: Bucket) -> None:
    folder = location_of(bucket.url)
    counts = []
    for step in range(10, 80, 10):
        before = len(bucket.proxy.requests)
        write_sharded(folder, StateVersion(1, step), Retention(1, 10))
        counts.append(len(bucket.proxy.requests) - before)
    assert len(by_name(folder, SHARDED)) == 7
    assert len(set(counts[1:])) == 1, counts


@pytest.mark.process
@pytest.mark.torch
def test_a_training_keeps_them(tmp_path: Path) -> None:
    state = elastic.State(
        tmp_path, elastic.State.Options(keep=1, keep_every_steps=4, every=1), model=nn.Linear(1, 1)
    )
    state.restore()
    for _ in range(10):
        state.commit()
        assert state.flush()
    state.close()
    assert [found.version.step for found in by_name(tmp_path)] == [10, 8, 4]
