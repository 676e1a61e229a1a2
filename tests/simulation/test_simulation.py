"""Days of a cluster from seeds: what must always hold holds, and each seed tells one story."""

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Collection

import pytest

from tests.paths import ROOT
from tests.simulation.acts import BY_NAME, Act, calendar
from tests.simulation.groups import kept_step
from tests.simulation.invariants import check_churn, check_leaders, check_resize
from tests.simulation.story import Story, shrink
from tests.simulation.world import Setting, play

pytestmark = pytest.mark.simulation

CPU_SECONDS = 3600.0  # of new seeds
DAYS = 0.1  # of each seed that the gate plays
SHORT_DAYS = 0.03


def commit() -> str:
    """The commit of this checkout: each has seeds of its own, and the same ones each time."""
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "0"


@pytest.mark.parametrize("seed", range(1, 4))
def test_what_must_always_hold_holds_in_tenths_of_a_day(seed: int) -> None:
    play(Setting(seed, DAYS), calendar(seed, DAYS))


@pytest.mark.long
def test_what_must_always_hold_holds_in_days_of_new_seeds() -> None:
    began, first = time.process_time(), int(commit()[:7], 16)
    for seed in itertools.count(first):
        print(f"seed {seed}: make simulate ARGS='--days 1 --seed {seed} --shrink'")
        play(Setting(seed, 1.0), calendar(seed, 1.0))
        if time.process_time() > began + CPU_SECONDS:
            return


@pytest.mark.process
def test_seed_tells_the_same_story_twice_and_in_another_process() -> None:
    digests = {
        play(Setting(1, SHORT_DAYS, jobs=2), calendar(1, SHORT_DAYS)).digest for _ in range(2)
    }
    command = [
        sys.executable,
        "-m",
        "tests.simulation",
        "--days",
        str(SHORT_DAYS),
        "--jobs",
        "2",
        "--seed",
        "1",
    ]
    other = {**os.environ, "PYTHONHASHSEED": "4711"}
    told = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, env=other
    ).stdout
    (digest,) = digests
    assert f"story {digest}," in told


def test_story_is_the_same_whether_or_not_quiet_is_skipped() -> None:
    acts = [
        Act(0, 60.0, "kill_container"),
        Act(1, 60.2, "scale"),
        Act(2, 150.0, "drain_node"),
        Act(3, 1000.0, "kill_leader"),
    ]
    settings = (
        Setting(3, 1100.0 / 86_400, nodes=4, jobs=1, skips=skips) for skips in (True, False)
    )
    skipped, lived = (play(setting, acts) for setting in settings)
    assert skipped.course() == lived.course()
    stood = [line for line in skipped.course() if "stands: Running" in line]
    assert len(stood) == 1 + 3


def test_quiet_waits_for_the_list_that_shows_a_job_that_its_workload_is_gone() -> None:
    acts = [Act(0, 300.0, "delete_workload"), Act(1, 1000.0, "kill_container")]
    story = play(Setting(17, 1100.0 / 86_400, nodes=4, jobs=1), acts)
    told = [line.what for line in story.lines if line.at > 299.0]
    assert told[0] == "0 delete_workload queued-spares-0-base"
    assert told[1] == "round 2 of []: Evicted", "its spares have quota for two pods"


@pytest.mark.parametrize(
    "acts, found", [(["0 kill_leader"], 1), (["0 kill_node"], 0), (["0 scale", "1 kill_leader"], 0)]
)
def test_group_that_is_lost_for_the_operators_sake_is_found(acts: list[str], found: int) -> None:
    story = Story(lambda: 0.0)
    story.tell("a", "stands: Running, 3 workers")
    for act in acts:
        story.tell("act", act)
    story.tell("default/b", "round 1 of [0]: FirstRound")
    story.tell("default/a", "round 7 of [0,1]: WorkerLost")
    assert len([*check_leaders(story)]) == found


@pytest.mark.parametrize(
    "parts, unit, step",
    [
        ([], 1, 0),
        ([(0, 7), (3, 9)], 1, 9),
        ([(0, 7), (0, 9)], 1, 9),
        ([(1, 9), (3, 9)], 2, 0),
        ([(0, 7), (1, 9), (3, 9)], 2, 7),
    ],
)
def test_state_is_kept_where_all_its_parts_are(
    parts: list[tuple[int, int]], unit: int, step: int
) -> None:
    assert kept_step(parts, unit) == step


@pytest.mark.parametrize("count, found", [(40, 0), (41, 1)])
def test_pods_that_are_made_without_end_are_found(count: int, found: int) -> None:
    story = Story(lambda: 0.0)
    story.tell("act", "0 fill_disk")
    for _ in range(count):
        story.tell("default/a", "created pod a-worker-0-xxxxx")
    assert len([*check_churn(story)]) == found


def test_every_act_can_happen() -> None:
    acts = [Act(number, 60.0 + 10.0 * number, name) for number, name in enumerate(BY_NAME)]
    story = play(Setting(5, 600.0 / 86_400), acts)
    happened = [
        line.what.split()[1] for line in story.lines if line.who == "act" and line.what[0].isdigit()
    ]
    assert happened == list(BY_NAME)


@pytest.mark.parametrize("needed", [{0}, {99}, {3, 50}, {10, 11, 12}, set()])
def test_of_a_story_that_fails_only_what_is_needed_is_left(needed: set[int]) -> None:
    tried = 0

    def fails(numbers: Collection[int]) -> bool:
        nonlocal tried
        tried += 1
        return needed <= set(numbers)

    assert shrink(range(100), fails) == sorted(needed)
    assert tried < 100


@pytest.mark.parametrize(
    "acts, found",
    [
        (["0 scale a: {}"], 1),
        (["0 scale b: {}"], 0),
        (["0 kill_node"], 0),
        (["0 scale a: {}", "1 scale a: {}"], 0),
    ],
)
def test_pod_that_is_made_anew_by_a_resize_is_found(acts: list[str], found: int) -> None:
    story = Story(lambda: 0.0)
    for who, what in (
        ("a", "stands: Running, 3 workers"),
        *(("act", act) for act in acts),
        ("default/a", "deleted pod a-worker-2-xxxxx is no longer wanted"),
        ("default/a", "created pod a-worker-2-yyyyy"),
        ("default/b", "created pod b-worker-0-zzzzz"),
    ):
        story.tell(who, what)
    assert len([*check_resize(story)]) == found
