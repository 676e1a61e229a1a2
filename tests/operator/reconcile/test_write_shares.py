"""How many writes of all, and of a namespace, are on their way, and whose is next."""

from collections import Counter
from typing import Any

import pytest
from elastic_pytorch_operator.cluster.interface import ClusterError
from elastic_pytorch_operator.reconcile.write_shares import (
    HANG_SECONDS,
    LEAST_MAX_WRITES,
    MAX_SHARE,
    MAX_WRITES,
    MIN_SHARE,
    MIN_WRITES,
    MOST_MAX_WRITES,
    URGENT_PART,
    Turn,
    WriteShares,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.operator.counted_lines import count_lines

NO_ANSWER = ClusterError(0, "no answer from the API server: TimeoutError")
OVERLOADED = ClusterError(429, "the server has received too many requests and has asked us to try again later")
DENIED_BY_429 = ClusterError(429, 'admission webhook "w.example.com" denied the request: not so fast', retry_after_seconds=60.0)
HANGING = ClusterError(500, 'Internal error occurred: failed calling webhook "w.example.com": context deadline exceeded')
OUT_OF_TIME = ClusterError(504, "Timeout: request did not complete within the allotted timeout")
CONFLICT = ClusterError(409, "the object has been modified")
QUOTA = ClusterError(403, "exceeded quota")


class World:
    """Shares, and what is on its way."""

    def __init__(self, max_writes: int = MAX_WRITES) -> None:
        self.shares: WriteShares[str] = WriteShares(max_writes)
        self.sent: list[Turn[str]] = []
        self.now = 100.0

    def want(self, namespace: str, jobs: int = 60, *, urgent: bool = True) -> None:
        """Jobs of a namespace that have something to write."""
        for number in range(jobs):
            self.shares.add(f"{namespace}/{number}", namespace, urgent=urgent)

    def fill(self) -> Counter[str]:
        """Gives all turns that there are; returns how many writes of each namespace are on their way."""
        while (turn := self.shares.take(self.now)) is not None:
            self.sent.append(turn)
        return self.on_their_way

    def take(self, namespace: str = "") -> Turn[str] | None:
        """Gives one turn, to a namespace that must be next."""
        turn = self.shares.take(self.now)
        if turn is not None:
            assert namespace in ("", turn.namespace)
            self.sent.append(turn)
        return turn

    def end(self, namespace: str, error: ClusterError | None = None, seconds: float = 0.03, count: int = 1) -> None:
        """The oldest writes of a namespace end."""
        self.now += seconds
        ended = [turn for turn in self.sent if turn.namespace == namespace][:count]
        assert len(ended) == count
        for turn in ended:
            self.sent.remove(turn)
            self.shares.end(turn, self.now, error)

    @property
    def on_their_way(self) -> Counter[str]:
        return Counter(turn.namespace for turn in self.sent)


@pytest.mark.parametrize("max_writes", [LEAST_MAX_WRITES, 11, MOST_MAX_WRITES])
def test_number_of_writes_may_be_set_and_a_namespace_has_half_of_them(max_writes: int) -> None:
    world = World(max_writes)
    world.want("team-a", jobs=200)
    assert world.fill() == {"team-a": max_writes // 2}
    for number in range(200):
        world.want(f"team-{number}", jobs=1)
    assert world.fill().total() == max_writes
    for _ in range(3):
        world.end("team-a", HANGING, seconds=HANG_SECONDS, count=1)
    assert 0 < world.fill()["team-a"] <= max_writes // 2
    world.end("team-a", OVERLOADED)
    assert world.shares.limit == max_writes // 2


@pytest.mark.parametrize(
    ("namespaces", "urgent", "most", "all_"),
    [
        (1, True, 25, 25),
        (2, True, 17, 34),
        (3, True, 13, 38),
        (10, True, 5, 46),
        (24, True, 2, 48),
        (200, True, 1, MAX_WRITES),
        (1, False, 25, 25),
        (10, False, 5, MAX_WRITES - MAX_WRITES // URGENT_PART),
        (200, False, 1, MAX_WRITES - MAX_WRITES // URGENT_PART),
    ],
)
def test_what_namespaces_have_on_their_way_if_all_want_much(namespaces: int, urgent: bool, most: int, all_: int) -> None:
    world = World()
    for number in range(namespaces):
        world.want(f"team-{number}", urgent=urgent)
    found = world.fill()
    assert (max(found.values()), found.total()) == (most, all_)
    assert max(found.values()) - min(found.values()) <= 1, "all get the same"


def test_another_namespace_finds_a_slot_at_once_however_much_the_others_want() -> None:
    for hanging in range(1, MAX_SHARE):
        world = World()
        for number in range(hanging):
            world.want(f"hanging-{number}")
        world.fill()
        world.want("healthy")
        assert world.fill()["healthy"] >= 1, f"beside {hanging}"


def test_urgent_write_finds_a_slot_beside_any_number_of_namespaces_with_other_writes() -> None:
    world = World()
    for number in range(500):
        world.want(f"team-{number}", urgent=False)
    world.fill()
    world.want("healthy", 1)
    assert world.fill()["healthy"] == 1


def test_jobs_of_a_namespace_take_turns_and_urgent_ones_go_first() -> None:
    shares: WriteShares[str] = WriteShares()
    shares.add("progress", "a", urgent=False)
    shares.add("first", "a", urgent=True)
    shares.add("second", "a", urgent=True)
    shares.add("first", "a", urgent=True)
    shares.add("becomes urgent", "a", urgent=False)
    shares.add("becomes urgent", "a", urgent=True)
    shares.add("gone", "a", urgent=True)
    shares.discard("gone", "a")
    shares.discard("unknown", "b")
    taken = [shares.take(0.0) for _ in range(5)]
    assert [turn and turn.sender for turn in taken] == ["first", "second", "becomes urgent", "progress", None]


def test_those_that_are_not_urgent_wait_for_a_bounded_number_of_others() -> None:
    world = World()
    world.want("a", 1, urgent=False)
    world.want("b")
    while not world.fill()["a"]:
        world.end("b")
    assert len([turn for turn in world.sent if turn.namespace == "b"]) <= MAX_SHARE


@pytest.mark.parametrize(
    ("ends", "share"),
    [
        ([(None, 0.03)], MAX_SHARE),
        ([(None, 9.0)], MAX_SHARE),
        ([(CONFLICT, 0.03)], MAX_SHARE),
        ([(QUOTA, 0.03)], MAX_SHARE),
        ([(HANGING, 1.0)], MAX_SHARE),
        ([(HANGING, HANG_SECONDS)], 12),
        ([(HANGING, 30.0)], 12),
        ([(OUT_OF_TIME, 32.0)], 12),
        ([(NO_ANSWER, 0.01)], 12),
        ([(NO_ANSWER, 35.0)], 12),
        ([(HANGING, 30.0)] * 2, 6),
        ([(HANGING, 30.0)] * 20, MIN_SHARE),
        ([(HANGING, 30.0)] * 20 + [(None, 0.03)] * 3, MIN_SHARE + 3),
        ([(HANGING, 30.0)] * 20 + [(None, 0.03)] * 99, MAX_SHARE),
    ],
)
def test_writes_that_hang_halve_the_share_of_their_own_namespace(
    ends: list[tuple[ClusterError | None, float]], share: int
) -> None:
    world = World()
    world.want("a", 1000)
    for error, seconds in ends:
        world.take("a")
        world.end("a", error, seconds)
    assert world.shares.limit == MAX_WRITES
    assert world.fill()["a"] == share
    world.want("b", 1000)
    assert world.fill()["b"] >= MAX_WRITES // 4


def test_namespace_that_has_nothing_to_write_is_forgotten() -> None:
    world = World()
    world.want("a", 1)
    world.fill()
    world.end("a", HANGING, 30.0)
    world.want("a", 100)
    assert world.fill()["a"] == MAX_SHARE


@pytest.mark.parametrize(
    ("error", "pause_seconds", "limit"),
    [
        (None, 0.0, MAX_WRITES),
        (CONFLICT, 0.0, MAX_WRITES),
        (HANGING, 0.0, MAX_WRITES),
        (NO_ANSWER, 0.0, MAX_WRITES),
        (OVERLOADED, 1.0, MAX_WRITES // 2),
        (ClusterError(429, "too many requests", retry_after_seconds=7.0), 7.0, MAX_WRITES // 2),
        (ClusterError(429, "too many requests", retry_after_seconds=9e9), 60.0, MAX_WRITES // 2),
        (DENIED_BY_429, 0.0, MAX_WRITES),
    ],
)
def test_how_all_are_limited_by_the_end_of_one_write(error: ClusterError | None, pause_seconds: float, limit: int) -> None:
    world = World()
    world.want("a", 1000)
    world.take("a")
    world.end("a", error)
    assert (max(0.0, world.shares.paused_until - world.now), world.shares.limit) == (pytest.approx(pause_seconds), limit)
    assert bool(world.fill()) is not bool(pause_seconds)
    world.now += pause_seconds
    assert world.fill()["a"] == (12 if error is NO_ANSWER else (limit + 1) // 2)


def test_many_that_are_asked_to_wait_together_are_one_request_to_wait() -> None:
    world = World()
    world.want("a", 1000)
    world.fill()
    world.end("a", OVERLOADED, count=MAX_SHARE)
    assert world.shares.limit == MAX_WRITES // 2
    for _ in range(9):
        world.now += 1.0
        world.fill()
        world.end("a", OVERLOADED)
    assert world.shares.limit == MIN_WRITES
    world.now += 1.0
    for _ in range(3 * MAX_WRITES):
        world.fill()
        world.end("a")
    assert world.shares.limit == MAX_WRITES


@pytest.mark.parametrize(
    ("ends", "limit"),
    [
        ("aaaa", MAX_WRITES),
        ("ab", MIN_WRITES),
        ("aab", MIN_WRITES),
        ("aCb", MAX_WRITES),
        ("abC", MIN_WRITES + 1),
        ("abCCC", MIN_WRITES + 3),
    ],
)
def test_api_server_is_in_trouble_if_two_namespaces_get_no_answer_and_no_other_does(ends: str, limit: int) -> None:
    """Small: a write of that namespace gets no answer; large: one is answered."""
    world = World()
    for namespace in "abc":
        world.want(namespace, 10)
    world.fill()
    for end in ends:
        world.end(end.lower(), NO_ANSWER if end.islower() else None)
    assert world.shares.limit == limit


def test_pause_grows_while_nothing_is_answered() -> None:
    world = World()
    pauses = []
    for namespace in "abcdefghij":
        world.want(namespace, 1000)
    for _ in range(8):
        ended = next(iter(world.fill()))
        world.end(ended, NO_ANSWER)
        if world.shares.paused_until > world.now:
            pauses.append(round(world.shares.paused_until - world.now, 1))
            world.now = world.shares.paused_until
    assert pauses[:6] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0]


ERRORS = st.sampled_from([None, CONFLICT, QUOTA, HANGING, OUT_OF_TIME, NO_ANSWER, OVERLOADED, DENIED_BY_429])
STEPS = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 9), st.integers(0, 4), st.booleans()),
    st.tuples(st.just("discard"), st.integers(0, 9), st.integers(0, 4)),
    st.tuples(st.just("take"), st.integers(1, 60)),
    st.tuples(st.just("end"), st.integers(0, 60), ERRORS, st.sampled_from([0.03, 6.0, 35.0])),
)


@given(st.lists(STEPS, max_size=200))
def test_whatever_happens_no_limit_is_exceeded_and_all_that_waits_is_sent(steps: list[tuple[Any, ...]]) -> None:
    world, waiting = World(), set[str]()
    for step in steps:
        match step:
            case ("add", namespace, job, urgent):
                world.shares.add(f"{namespace}/{job}", str(namespace), urgent=urgent)
                waiting.add(f"{namespace}/{job}")
            case ("discard", namespace, job):
                world.shares.discard(f"{namespace}/{job}", str(namespace))
                waiting.discard(f"{namespace}/{job}")
            case ("take", count):
                for _ in range(count):
                    before, free = world.on_their_way, world.shares.limit - len(world.sent)
                    turn = world.shares.take(world.now)
                    if turn is None:
                        break
                    assert before[turn.namespace] < min(free, MAX_SHARE), "fewer than slots are free"
                    assert world.now >= world.shares.paused_until
                    waiting.remove(turn.sender)
                    world.sent.append(turn)
                    others = sum(not sent.urgent for sent in world.sent)
                    assert turn.urgent or others <= world.shares.limit - world.shares.limit // URGENT_PART
            case ("end", which, error, seconds) if world.sent:
                world.end(world.sent[which % len(world.sent)].namespace, error, seconds)
        assert MIN_WRITES <= world.shares.limit <= MAX_WRITES
        assert len(world.sent) <= MAX_WRITES
    for _ in range(1000):
        world.now = max(world.now, world.shares.paused_until)
        for turn in world.sent:
            world.shares.end(turn, world.now)
        world.sent.clear()
        waiting -= {turn.sender for turn in iter(world.take, None)}
    assert waiting == set()


@pytest.mark.parametrize("namespaces", [1, 1000])
def test_turn_costs_the_same_however_many_wait(namespaces: int) -> None:
    world = World()
    for number in range(namespaces):
        world.want(f"team-{number}", 1000 // namespaces)
    world.fill()

    def turn() -> None:
        ended = world.sent.pop()
        world.shares.end(ended, world.now)
        assert world.shares.take(world.now) is not None
        world.shares.add(ended.sender, ended.namespace, urgent=True)

    assert count_lines(turn) < 400
