from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.leadership.lease import (
    MAX_LEASE_SECONDS,
    MAX_TRANSITIONS,
    UNHELD,
    Candidacy,
    Lease,
    LeaseTiming,
    acquirable_at,
    acquire,
    acquired,
    leads_until,
    read_lease,
    release,
    see,
)
from hypothesis import given

from tests.operator.any_jobs import any_objects

OURS = Lease("a", 15.0, "12:00:00", "11:00:00", 3)
THEIRS = replace(OURS, holder="b")
FREE = replace(OURS, holder="", seconds=1.0)


def leads(candidacy: Candidacy, now: float) -> bool:
    return now < leads_until(candidacy)


def may_acquire(candidacy: Candidacy, now: float) -> bool:
    return now >= acquirable_at(candidacy)


@pytest.mark.parametrize(
    ("seen", "changed_at", "now", "may"),
    [
        (UNHELD, 0.0, 0.0, True),  # nobody has ever led
        (FREE, 100.0, 100.0, True),  # given back
        # ours: renew it, or go on where the container before this one was
        (OURS, 100.0, 100.0, True),
        (THEIRS, 100.0, 100.0, False),  # just seen
        (THEIRS, 100.0, 114.9, False),
        (THEIRS, 100.0, 115.0, True),  # has not changed for as long as it holds
        (replace(THEIRS, seconds=40.0), 100.0, 120.0, False),  # its holder has asked for more time
        (THEIRS, 100.0, 50.0, False),  # a clock that goes back gives nobody anything
    ],
)
def test_who_may_claim(seen: Lease, changed_at: float, now: float, may: bool) -> None:
    assert may_acquire(Candidacy("a", seen, changed_at), now) is may


def test_a_lease_that_changes_is_alive_whatever_time_it_names() -> None:
    candidacy = see(Candidacy("a"), THEIRS, 100.0)
    # The holder's clock jumps about.
    for number, hour in enumerate(["12:00:02", "03:00:00", "23:59:59"], start=1):
        candidacy = see(candidacy, replace(THEIRS, renewed=hour), 100.0 + 2 * number)
    assert candidacy.changed_at == 106.0
    assert not may_acquire(candidacy, 120.0)
    assert may_acquire(candidacy, 121.0)


def test_a_lease_that_is_only_touched_is_not_renewed() -> None:
    candidacy = see(see(Candidacy("a"), THEIRS, 100.0), replace(THEIRS), 110.0)
    assert candidacy.changed_at == 100.0


def test_one_leads_from_before_the_claim_was_sent() -> None:
    candidacy = acquired(Candidacy("a"), OURS, sent_at=100.0, now=104.0)
    assert leads(candidacy, 102.99)
    assert not leads(candidacy, 103.0)


@pytest.mark.parametrize(
    "timing", [LeaseTiming(), LeaseTiming(15, 10.0, 2.0), LeaseTiming(60, 40.0, 5.0)]
)
def test_one_stops_before_another_may_begin(timing: LeaseTiming) -> None:
    candidacy = Candidacy("a", timing=timing)
    lease = read_lease(
        {"metadata": {"resourceVersion": "7"}, "spec": acquire(candidacy, "12:00:00")}
    )
    leader = acquired(candidacy, lease, sent_at=100.0, now=100.0)
    other = see(Candidacy("b"), lease, 100.0)  # no earlier than it was sent
    moments = [100.0 + tenth / 10 for tenth in range(700)]
    assert not [now for now in moments if leads(leader, now) and may_acquire(other, now)]
    gap = min(now for now in moments if may_acquire(other, now)) - max(
        now for now in moments if leads(leader, now)
    )
    assert gap >= timing.lease_seconds - timing.renew_deadline_seconds


@pytest.mark.parametrize(
    "timing", [LeaseTiming(), LeaseTiming(15, 10.0, 2.0), LeaseTiming(3, 2.0, 1.0)]
)
def test_two_tries_fit_between_a_renewal_and_the_deadline(timing: LeaseTiming) -> None:
    tries = timing.request_seconds + timing.pause_seconds + timing.request_seconds
    assert timing.request_seconds > 0
    assert timing.retry_period_seconds + tries <= timing.renew_deadline_seconds


@pytest.mark.parametrize(
    ("lease", "deadline", "retry"),
    [
        (4, 4.0, 1.0),
        (4, 5.0, 1.0),
        (4, 3.0, 2.0),
        (4, 3.0, 0.0),
        (4, 3.0, -1.0),
        (0, -1.0, -1.0),
        (301, 3.0, 1.0),
    ],
)
def test_times_that_cannot_be_kept_are_refused(lease: int, deadline: float, retry: float) -> None:
    with pytest.raises(ValueError, match=r"the lease's duration .* must be "):
        LeaseTiming(lease, deadline, retry)


def test_one_who_sees_another_name_leads_no_more() -> None:
    candidacy = see(acquired(Candidacy("a"), OURS, 100.0, 100.0), THEIRS, 101.0)
    assert not leads(candidacy, 101.0)
    assert not leads(see(candidacy, OURS, 102.0), 102.0), (
        "a name alone is not enough: it must have been written now"
    )


def test_who_leads_must_write_it() -> None:
    assert not leads(see(Candidacy("a"), OURS, 100.0), 100.0), "of a process before this one"
    assert not leads(Candidacy("a"), 0.0)


def test_claims_count_the_changes_of_hands() -> None:
    renewed: dict[str, Any] = acquire(Candidacy("a", OURS), "12:00:02")
    found = (renewed["leaseTransitions"], renewed["acquireTime"], renewed["renewTime"])
    assert found == (3, "11:00:00", "12:00:02")
    taken = acquire(Candidacy("a", THEIRS), "12:00:02")
    told = (taken["leaseTransitions"], taken["acquireTime"], taken["holderIdentity"])
    assert told == (4, "12:00:02", "a")
    assert taken["leaseDurationSeconds"] == 4


def test_a_lease_given_back_is_anybodys() -> None:
    spec = release(OURS, "12:00:03")
    lease = read_lease({"metadata": {"resourceVersion": "8"}, "spec": spec})
    assert may_acquire(see(Candidacy("b"), lease, 100.0), 100.0)


def test_a_lease_made_by_hand_is_read() -> None:
    assert read_lease({"metadata": {"resourceVersion": "1"}}) == Lease("", 15.0, "", "", 0)
    assert read_lease({"spec": {"holderIdentity": None, "leaseDurationSeconds": None}}).holder == ""


WRITTEN = {
    "metadata": {"resourceVersion": "7"},
    "spec": {
        **acquire(Candidacy("b", THEIRS), "2026-01-01T00:00:00.000000Z"),
        "leaseDurationSeconds": 15,
    },
}


@given(any_objects(WRITTEN, below="spec"))
def test_whatever_a_lease_holds_it_is_claimed_in_time_and_as_the_api_allows(
    manifest: dict[str, Any],
) -> None:
    lease = read_lease(manifest)
    for identity in ("a", lease.holder or "a"):
        candidacy = see(see(Candidacy(identity), lease, 100.0), read_lease(manifest), 101.0)
        assert may_acquire(candidacy, 100.0 + MAX_LEASE_SECONDS)
        spec = acquire(candidacy, "12:00:00")
        assert all(
            isinstance(spec[name], str) and spec[name]
            for name in ("holderIdentity", "acquireTime", "renewTime")
        )
        assert spec["leaseDurationSeconds"] == 4
        assert isinstance(spec["leaseTransitions"], int)
        assert 0 <= spec["leaseTransitions"] <= MAX_TRANSITIONS


@pytest.mark.parametrize(
    ("field", "value", "read"),
    [
        ("leaseDurationSeconds", "15", {"seconds": 15.0}),
        ("leaseDurationSeconds", 0, {"seconds": 15.0}),
        ("leaseDurationSeconds", 2**31 - 1, {"seconds": 300.0}),
        ("leaseDurationSeconds", 40, {"seconds": 40.0}),
        ("leaseTransitions", 2**31 - 1, {"transitions": 2**31 - 1}),
        ("leaseTransitions", -1, {"transitions": 0}),
        ("leaseTransitions", "x", {"transitions": 0}),
        ("holderIdentity", ["b"], {"holder": ""}),
        ("renewTime", 7, {"renewed": ""}),
    ],
)
def test_what_somebody_has_written_into_a_lease_is_bounded(
    field: str, value: object, read: dict[str, Any]
) -> None:
    lease = read_lease({"spec": {field: value}})
    assert lease == replace(Lease("", 15.0, "", "", 0), **read)


def test_a_lease_whose_count_is_at_its_end_is_taken() -> None:
    found = acquire(Candidacy("a", replace(THEIRS, transitions=MAX_TRANSITIONS)), "12:00:00")[
        "leaseTransitions"
    ]
    assert found == MAX_TRANSITIONS
    assert (
        acquire(Candidacy("a", replace(OURS, acquired="")), "12:00:00")["acquireTime"] == "12:00:00"
    ), "a time must be one"
