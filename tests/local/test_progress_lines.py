from dataclasses import replace

from elastic_pytorch_client.reading.history import HistoryEntry
from elastic_pytorch_client.reading.job_view import JobView, Progress, view_job
from elastic_pytorch_local.progress_lines import ProgressLines, describe_change, headline

WORKERS = [{"name": f"w{i}", "index": i, "rank": i, "state": "Running"} for i in range(3)]
STATUS = {"state": "Running", "round": 1, "readyReplicas": 3, "workers": WORKERS}
JOB = view_job({"metadata": {"name": "lm"}, "spec": {"replicas": 3}, "status": STATUS})
OVER = HistoryEntry(round=2, cause="WorkerLost", before=3, workers=2, seconds=0.42, steps_lost=0)


def test_line_has_step_loss_size_and_speed() -> None:
    assert (
        headline(view_job({}), Progress(), None)
        == "Pending: no step yet, 0 of 1 workers are ready, round 0"
    )
    progress = Progress(step=120, total=800, loss=2.3456)
    assert (
        headline(JOB, progress, 8.12)
        == "Running: step 120/800, loss 2.346, 3 of 3 workers train, round 1, 8.1 steps/s"
    )


def test_change_has_its_cost_in_the_words_of_the_page() -> None:
    assert (
        describe_change(OVER)
        == "round 2, WorkerLost, 3 -> 2 workers: training stood still 0.4 s, 0 steps repeated"
    )
    assert describe_change(replace(OVER, steps_lost=None)).endswith(
        "workers: the processes ran after 0.4 s"
    )


def told(lines: ProgressLines, job: JobView, step: int | None, now: float) -> list[str]:
    return [
        line.partition(":")[0].partition(" (")[0]
        for line in lines.due(job, Progress(step=step), None, [7], now)
    ]


def test_lines_come_with_each_change_and_now_and_then_with_steps() -> None:
    lines = ProgressLines()
    assert told(lines, JOB, 1, 0.0) == ["Running"]
    assert told(lines, JOB, 2, 5.0) == []
    assert told(lines, JOB, 3, 10.0) == ["Running"]
    changed = replace(JOB, round=2, history=(OVER,))
    assert told(lines, changed, 4, 11.0) == ["round 2, WorkerLost, 3 -> 2 workers", "Running"]
    assert told(lines, changed, 5, 12.0) == []
    assert told(ProgressLines(changes=False), changed, 4, 11.0) == ["Running"], (
        "the acts tell what they have cost"
    )


def test_a_minute_without_a_step_is_told_once_with_what_to_do() -> None:
    lines = ProgressLines()
    lines.due(JOB, Progress(), None, [7], 0.0)
    assert lines.due(JOB, Progress(), None, [7], 59.0) == []
    [line] = lines.due(JOB, Progress(), None, [7], 60.0)
    assert line.startswith("No step for a minute. ")
    assert all(
        remedy in line
        for remedy in ("py-spy dump --pid 7", "progressDeadlineSeconds", "elastic_pytorch.report(")
    )
    assert lines.due(JOB, Progress(), None, [7], 600.0) == []
    lines.due(JOB, Progress(step=5), None, [7], 601.0)
    [line] = lines.due(JOB, Progress(step=5), None, [], 661.0)
    assert line.startswith("No step for a minute after step 5. ")
