from elastic_pytorch_client.reading.timeline import read_events

from tests.plugin.recorded_cluster import events_of, recorded


def test_events_of_an_earlier_job_of_the_same_name_are_another_story() -> None:
    events = [
        e for e in recorded("young")["events"] if e["involvedObject"]["kind"] == "ElasticPyTorchJob"
    ]
    assert read_events(events, "another-uid") == []
    assert [event.round for event in read_events(events)] == [1]


def test_events_know_what_their_notes_say() -> None:
    leaving, resumed = events_of("whole")[1:3]
    assert (leaving.reason, leaving.round, leaving.workers) == ("WorkerLeaving", 2, 2)
    assert leaving.cause == "char-lm-worker-1-v7jk7 is being deleted"
    told = (resumed.workers, resumed.seconds, resumed.cause, resumed.steps_lost)
    assert told == (2, 1.0, "WorkerLeaving", 9)
