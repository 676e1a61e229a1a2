"""The recorded training of the README's picture: what its page shows."""

from elastic_pytorch_client.page.history import History
from elastic_pytorch_client.page.node_rows import SeenJob, nodes_of
from elastic_pytorch_client.reading.job_view import view_job

from tests.paths import ROOT
from tests.plugin.page.recorded_run import FILE, read_run, states

MAX_BYTES = 150_000


def test_a_worker_is_lost_and_replaced_and_the_job_grows() -> None:
    history, found = History(), [(at, view_job(job)) for at, job in states()]
    for at, job in found:
        history.take(job, at)
    sizes = [size.workers for size in history.sizes if size.workers]
    assert sizes[0] == 3
    assert (min(sizes[sizes.index(3) :]), sizes[-1]) == (2, 4)
    end, job = found[-1]
    assert (job.state, job.world, job.progress.step is not None) == ("Running", 4, True)
    causes = [interruption.cause for interruption in job.recent_interruptions]
    assert causes[-1] == "WorkerJoined"
    assert {"WorkerLost", "WorkerLeaving", "WorkerFailed"} & set(causes)
    rows = nodes_of([SeenJob(job, tuple(history.departures))], None, end)["nodes"]
    assert len(rows) == 1, "the node of the worker that was killed"
    assert {worker.name for worker in job.workers} == set(read_run()["logs"])


def test_it_is_small_and_tells_nothing_of_the_machine() -> None:
    text = FILE.read_text()
    assert len(text) < MAX_BYTES
    assert not [word for word in (f"{ROOT}/", "/root/", "/home/") if word in text]
