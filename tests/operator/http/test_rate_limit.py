import pytest
from elastic_pytorch_operator.http.rate_limit import RateLimit


def test_a_burst_is_admitted_and_then_so_many_a_second() -> None:
    limit: RateLimit[str] = RateLimit(per_second=10, burst=5)
    assert sum(limit.admit("a", 100.0) == 0 for _ in range(50)) == 5
    assert sum(limit.admit("a", 100.0 + n / 100) == 0 for n in range(1, 101)) == 10


@pytest.mark.parametrize("now", [100.0, 1e7 / 3, 1e9 / 7])
@pytest.mark.parametrize("rate", [1 / 30, 1.0, 3.0, 20.0])
def test_who_waits_as_long_as_told_is_admitted_at_any_time(now: float, rate: float) -> None:
    limit: RateLimit[str] = RateLimit(per_second=rate, burst=1)
    for _ in range(20):
        limit.admit("a", now)
        now += limit.wait_seconds("a", now)
        assert limit.admit("a", now) == 0


def test_a_clock_that_goes_back_gives_nothing() -> None:
    limit: RateLimit[str] = RateLimit(per_second=1, burst=1)
    assert limit.admit("a", 100.0) == 0
    assert limit.admit("a", 50.0) > 0


def test_who_is_charged_owes_a_second_at_most() -> None:
    limit: RateLimit[str] = RateLimit(per_second=4, burst=10)
    limit.charge("a", 3, 100.0)
    assert sum(limit.admit("a", 100.0) == 0 for _ in range(20)) == 7
    limit.charge("a", 1000, 100.0)
    assert limit.admit("a", 101.0) > 0
    assert limit.admit("a", 101.25) == 0


def test_request_that_counts_as_several_is_admitted_as_soon_as_one_and_delays_the_next() -> None:
    limit: RateLimit[str] = RateLimit(per_second=4, burst=10)
    assert limit.admit("a", 100.0, price=12) == 0
    assert limit.admit("a", 100.0) == 0.75
    assert limit.admit("a", 100.75, price=1000) == 0
    assert limit.admit("a", 100.75) == 1.25, "it owes a second at most"


def test_memory_is_bounded() -> None:
    limit: RateLimit[int] = RateLimit(per_second=1, burst=1, max_keys=10)
    for key in range(1000):
        limit.admit(key, 100.0)
    assert limit.admit(999, 100.0) > 0, "the newest are remembered"
    assert limit.admit(1, 100.0) == 0
