"""The recorded training of the README's picture: what its page shows."""

from elastic_pytorch_client.page.timeline import timeline_of
from elastic_pytorch_client.reading.job_view import view_job

from tests.paths import ROOT
from tests.plugin.page.recorded_run import FILE, read_run, recorded_at

MAX_BYTES = 150_000


def test_a_worker_is_lost_and_replaced_and_the_job_grows() -> None:
    job = view_job(read_run()["job"])
    assert (job.state, job.world, job.progress.step is not None) == ("Running", 4, True)
    timeline = timeline_of(job, [], recorded_at())
    sizes = [size["workers"] for size in timeline["sizes"] if size["workers"]]
    assert sizes[0] == 3
    assert (min(sizes), sizes[-1]) == (2, 4)
    causes = [interruption.cause for interruption in job.recent_interruptions]
    assert causes[-1] == "WorkerJoined"
    assert {"WorkerLost", "WorkerLeaving", "WorkerFailed"} & set(causes)
    (_, first), *_, (_, last) = timeline["losses"]
    assert (len(timeline["losses"]) > 10, last < first) == (True, True)
    assert {worker.name for worker in job.workers} == set(read_run()["logs"])


def test_it_is_small_and_tells_nothing_of_the_machine() -> None:
    text = FILE.read_text()
    assert len(text) < MAX_BYTES
    assert not [word for word in (f"{ROOT}/", "/root/", "/home/") if word in text]
