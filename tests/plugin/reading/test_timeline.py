from elastic_pytorch_client.reading.timeline import read_events

from tests.plugin.recorded_cluster import events_of, recorded


def test_events_of_an_earlier_job_of_the_same_name_are_another_story() -> None:
    events = [
        e for e in recorded("young")["events"] if e["involvedObject"]["kind"] == "ElasticPyTorchJob"
    ]
    assert read_events(events, "another-uid") == []
    assert [event.round for event in read_events(events)] == [1]


def test_events_know_what_their_notes_say() -> None:
    by_reason = {event.reason: event for event in events_of("resumed")}
    assert (by_reason["ScaledDown"].round, by_reason["ScaledDown"].workers) == (5, 2)
    assert by_reason["ScaledDown"].cause.startswith("char-lm-worker-2-w9n54 is no longer wanted")
    again = by_reason["TrainingResumed"]
    assert (again.workers, again.seconds, again.cause, again.steps_lost) == (
        2,
        1.9,
        "ScaledDown",
        13,
    )
