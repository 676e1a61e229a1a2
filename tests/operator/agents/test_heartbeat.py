import math
from typing import Any

import pytest
from elastic_pytorch_operator.agents.heartbeat import MalformedHeartbeat, parse_heartbeat
from elastic_pytorch_operator.model.observed import (
    MAX_COMPARED,
    MAX_PLACES,
    AgentView,
    Place,
    PlaceKind,
)
from hypothesis import given
from hypothesis import strategies as st

GOOD: dict[str, Any] = {
    "incarnation": "5f0c",
    "state": "running",
    "round": 7,
    "rank": 1,
    "worldSize": 3,
    "localWorldSize": 1,
    "port": 29501,
    "restarts": 2,
    "progress": {
        "step": 120,
        "firstStep": 101,
        "total": 1000,
        "loss": 2.31,
        "checkpointStep": 100,
        "checkpoints": 4,
        "startedAgeSeconds": 2.5,
        "formedAgeSeconds": None,
        "savingSeconds": 1.5,
    },
    "failure": None,
}
FAILURE = {
    "rank": 1,
    "pid": 57,
    "exitCode": -9,
    "signal": "SIGKILL",
    "ageSeconds": 0.5,
    "message": "killed",
}


def parse(body: object) -> AgentView:
    return parse_heartbeat("w0", body, 100.0)


def test_good_heartbeat() -> None:
    beat = parse(GOOD)
    assert (beat.state, beat.round, beat.progress.step, beat.progress.loss) == (
        "running",
        7,
        120,
        2.31,
    )
    assert beat.progress.checkpoints == 4
    assert (beat.started_at, beat.formed_at, beat.saving_since) == (
        97.5,
        None,
        98.5,
    )


@pytest.mark.parametrize(
    ("told", "gives_up"), [({}, False), ({"givesUp": False}, False), ({"givesUp": True}, True)]
)
def test_torchrun_that_gives_up(told: dict[str, bool], gives_up: bool) -> None:
    assert parse(GOOD | told).gives_up is gives_up


def test_scripts_that_report_nothing_do_not_tell_when_their_processes_started() -> None:
    beat = parse({**GOOD, "progress": None})
    assert (beat.started_at, beat.formed_at) == (None, None)


def test_failure_gets_its_time_on_the_operators_clock() -> None:
    failure = parse({**GOOD, "state": "failed", "failure": FAILURE}).failure
    assert failure is not None
    assert (failure.failed_at, failure.exit_code, failure.signal, failure.pid) == (
        99.5,
        137,
        "SIGKILL",
        57,
    )


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"state": "dancing"}, "state"),
        ({"incarnation": 5}, "incarnation"),
        ({"round": "7"}, "round"),
        ({"round": True}, "round"),
        ({"progress": []}, "progress"),
        ({"progress": {"loss": "low"}}, "progress.loss"),
        ({"progress": {"loss": True}}, "progress.loss"),
        ({"progress": {"loss": 10**400}}, "progress.loss"),
        ({"progress": {"loss": -(10**400)}}, "progress.loss"),
        ({"progress": {"loss": math.nan}}, "progress.loss"),
        ({"progress": {"formedAgeSeconds": "now"}}, "progress.formedAgeSeconds"),
        ({"progress": {"step": 1.5}}, "step"),
        ({"progress": {"workSeconds": 0.1}}, "progress.workSeconds"),
        ({"progress": {"workSeconds": [0.1, -0.1]}}, "progress.workSeconds"),
        ({"progress": {"workSeconds": ["0.1"]}}, "progress.workSeconds"),
        ({"progress": {"failedSaves": None}}, "failedSaves"),
        ({"places": []}, "places"),
        ({"places": {"ageSeconds": 1}}, "places.byLocalRank"),
        ({"places": {"ageSeconds": 1, "byLocalRank": [None]}}, "places.byLocalRank"),
        ({"places": {"ageSeconds": 1, "byLocalRank": [{"operation": "all_reduce"}]}}, "kind"),
        ({"places": {"byLocalRank": []}}, "places.ageSeconds"),
        ({"failure": {**FAILURE, "ageSeconds": 10**400}}, "failure.ageSeconds"),
        ({"failure": {**FAILURE, "rank": 2**31}}, "rank"),
        ({"rank": 2**31}, "rank"),
        ({"worldSize": 2**31}, "worldSize"),
    ],
)
def test_refusals_name_the_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(MalformedHeartbeat, match=field):
        parse({**GOOD, **change})


def test_work_of_each_local_rank() -> None:
    told = {"workWindows": 3, "workSeconds": [0.25, None, 1], "stepSeconds": 2}
    progress = parse({**GOOD, "progress": told}).progress
    assert (progress.work_windows, progress.work_seconds, progress.step_seconds) == (
        3,
        (0.25, None, 1.0),
        2.0,
    )
    many = parse({**GOOD, "progress": {**told, "workSeconds": [1] * 1024}}).progress
    assert len(many.work_seconds) == MAX_COMPARED
    older = parse({**GOOD, "progress": {"step": 3}}).progress
    assert (older.work_windows, older.work_seconds, older.step_seconds) == (None, (), None)


def test_where_the_processes_stand() -> None:
    told = [
        {"kind": "collective", "operation": "all_reduce", "frame": "train.py:60 step"},
        {
            "kind": "dataLoader",
            "operation": "",
            "frame": "\x1b[31m\u202etrain.py:41\nload" + "x" * 200,
        },
        {"kind": "a newer word", "operation": "All Reduce!"},
    ]
    beat = parse({**GOOD, "places": {"ageSeconds": 0.5, "byLocalRank": told}})
    assert beat.placed_at == 99.5
    assert beat.places == (
        Place(PlaceKind.COLLECTIVE, "all_reduce", "train.py:60 step"),
        Place(PlaceKind.DATA_LOADER, frame="[31m train.py:41 load" + "x" * 79),
        Place(PlaceKind.OTHER),
    )
    many = parse({**GOOD, "places": {"ageSeconds": 0, "byLocalRank": [{"kind": "lock"}] * 4097}})
    assert len(many.places) == MAX_PLACES
    assert parse(GOOD).places == parse({**GOOD, "places": None}).places == ()


def test_failed_saves_and_why() -> None:
    progress = parse({**GOOD, "progress": {"failedSaves": 3, "saveError": "x" * 1000}}).progress
    assert (progress.failed_saves, progress.save_error) == (3, "x" * 200)
    older = parse({**GOOD, "progress": {"step": 3}}).progress
    assert (older.failed_saves, older.save_error) == (0, "")


@pytest.mark.parametrize("loss", [0, -3, 1e300, 10**300])
def test_loss_may_be_any_number_that_is_finite(loss: float) -> None:
    assert parse({**GOOD, "progress": {"loss": loss}}).progress.loss == float(loss)


GARBAGE = {
    "": 1,
    "two words": 1,
    "line\n": 1,
    "\x1b[2J": 1,
    "x" * 64: 1,
    "text": "0.9",
    "yes": True,
    "none": None,
    "nan": math.nan,
    "inf": -math.inf,
    "huge": 10**400,
    "list": [1],
}


@pytest.mark.parametrize(
    ("told", "known"),
    [
        ({"accuracy": 0.93, "val/f1": 1}, (("accuracy", 0.93), ("val/f1", 1.0))),
        ({**GARBAGE, "accuracy": 0.93}, (("accuracy", 0.93),)),
        (
            {f"m{number}": number for number in range(40)},
            tuple((f"m{number}", float(number)) for number in range(16)),
        ),
        *[(garbage, ()) for garbage in (None, {}, [], [["accuracy", 1]], "accuracy", 7, True)],
    ],
)
def test_metrics_that_cannot_be_written_down_are_dropped_and_nothing_else(
    told: Any, known: Any
) -> None:
    progress = parse({**GOOD, "progress": {**GOOD["progress"], "metrics": told}}).progress
    assert (progress.metrics, progress.step, progress.loss) == (known, 120, 2.31)


def test_texts_can_be_written_down_and_read_back() -> None:
    texts = dict.fromkeys(
        ("signal", "exception", "message", "traceback"), "half \ud800 and whole \U0001f600"
    )
    failure = parse({**GOOD, "failure": {**FAILURE, **texts}}).failure
    assert failure is not None
    assert (
        failure.message
        == failure.traceback
        == failure.signal
        == failure.exception
        == "half ? and whole \U0001f600"
    )
    assert parse({**GOOD, "incarnation": "\udfff"}).incarnation == "?"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*GOOD, *FAILURE]), inner),
    max_leaves=12,
)


@given(JSON, st.sampled_from([*GOOD]))
def test_garbage_is_refused_and_nothing_else_is_raised(garbage: object, field: str) -> None:
    for body in (garbage, {**GOOD, field: garbage}):
        try:
            parse(body)
        except MalformedHeartbeat:
            continue
