"""`status.scaling`: what a leader writes, and what the next one reads."""

from dataclasses import replace

from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.scaling.autoscale import MIN_REST_SECONDS, Autoscale
from elastic_pytorch_operator.planning.scaling.comparison import Comparison
from elastic_pytorch_operator.planning.scaling.scaling import MAX_SIZES, Scaling, advance_scaling
from elastic_pytorch_operator.planning.scaling.scaling_status import read_scaling, write_scaling
from elastic_pytorch_operator.planning.scaling.throughput import Throughput

from tests.operator.builders import NOW, a_job, observed

AUTOSCALED = {"replicas": 4, "resizePolicy": {"autoscale": {}}}
KNOWN = Scaling(
    sizes={3: Throughput(3, 61.25, 0.5, NOW - 600), 4: Throughput(4, 64.9, 0.25, NOW - 60)},
    advice=Comparison(3, 4, 61.25, 64.9, 0.18, 0.05),
    autoscale=Autoscale(3, 4, NOW + 300, NOW - 90, unchanged=2, change_seconds=4.5),
    told=True,
)


def test_what_is_written() -> None:
    assert write_scaling(a_job(**AUTOSCALED), observed(), KNOWN) == {
        "message": "the 4th worker added 6 % (61.2 to 64.9 samples/s), an efficiency of 0.18; "
        "autoscale tries 4 instead of 3 workers",
        "efficiency": "0.18",
        "sizes": [
            {"workers": 3, "samplesPerSecond": "61.25", "error": "0.5", "time": "2025-12-31T23:50:00Z"},
            {"workers": 4, "samplesPerSecond": "64.9", "error": "0.25", "time": "2025-12-31T23:59:00Z"},
        ],
        "keptReplicas": 3,
    }


def test_job_of_which_nothing_is_known_has_no_such_field() -> None:
    assert write_scaling(a_job(), observed(), Scaling()) == {}


def test_next_leader_knows_what_was_measured_and_decided_and_tries_nothing_for_a_while() -> None:
    job = a_job(**AUTOSCALED, status={"scaling": write_scaling(a_job(**AUTOSCALED), observed(), KNOWN)})
    found = read_scaling(job, observed())
    assert (found.sizes, found.told) == (KNOWN.sizes, True)
    assert str(found.advice) == str(KNOWN.advice)
    assert found.autoscale == Autoscale(3, next_at=NOW + MIN_REST_SECONDS)
    later = Observed(now=7000.0, time="2026-01-01T00:01:00Z")  # of another clock
    moved = read_scaling(job, later)
    assert [size.at for size in moved.sizes.values()] == [7000 - 660, 7000 - 120]


def test_times_stay_as_they_were_written() -> None:
    job = a_job(**AUTOSCALED, status={"scaling": write_scaling(a_job(**AUTOSCALED), observed(), KNOWN)})
    later = Observed(now=NOW + 29.4, time="2026-01-01T00:00:30Z")
    assert write_scaling(job, later, KNOWN) == job.status["scaling"]


def test_sizes_are_bounded() -> None:
    known = Scaling(sizes={n: Throughput(n, float(n), 0.0, NOW - n) for n in range(1, MAX_SIZES + 1)})
    measured = replace(known.measurement, round=1, workers=99, rates=(1.0,) * 9, at=NOW)
    found, _ = advance_scaling(a_job(), observed(), replace(known, measurement=measured))
    assert sorted(found.sizes) == [*range(1, MAX_SIZES), 99]


def test_suspended_job_forgets() -> None:
    found, news = advance_scaling(a_job(**AUTOSCALED, suspend=True), observed(), KNOWN)
    assert (found, news.decision) == (Scaling(), None)


def test_new_spec_ends_the_rest() -> None:
    resting = replace(KNOWN, autoscale=Autoscale(3, next_at=NOW + 9999, unchanged=4))
    seen = {"observedGeneration": 1}
    assert advance_scaling(a_job(**AUTOSCALED, status=seen), observed(), resting)[0].autoscale.next_at == NOW + 9999
    found, _ = advance_scaling(a_job(**AUTOSCALED, status={"observedGeneration": 0}), observed(), resting)
    assert (found.autoscale.next_at, found.autoscale.unchanged) == (NOW, 0)


def test_job_that_is_not_autoscaled_any_more_has_all_workers() -> None:
    found, _ = advance_scaling(a_job(replicas=4), observed(), KNOWN)
    assert found.autoscale.limit(4) == 4
