from dataclasses import replace

import pytest
from elastic_pytorch_client.reading.diagnosis import diagnose
from elastic_pytorch_client.reading.job_view import view_job
from elastic_pytorch_client.reading.stragglers import Straggler, slowest_by_worker, view_stragglers
from elastic_pytorch_client.verbs.why import show_why
from elastic_pytorch_client.views.status_view import show_status
from elastic_pytorch_operator.planning.reporting.stragglers import Straggler as Told
from elastic_pytorch_operator.planning.reporting.stragglers import Stragglers

from tests.operator.builders import a_manifest
from tests.plugin.plugin_console import text_of
from tests.plugin.recorded_cluster import events_of, job_of, moment_of
from tests.plugin.test_diagnosis import evidence_of

JOB = job_of("young")
SLOW, OTHER = (Straggler(w.rank or 0, w.name, w.node, "1.8", "0.1") for w in JOB.members[1:])


def why(*stragglers: Straggler) -> str:
    return text_of(
        show_why(diagnose(replace(JOB, stragglers=stragglers), evidence_of("young"))), 400
    )


def test_they_are_read_as_the_operator_writes_them() -> None:
    told = Stragglers(
        (Told("w1", 1, 3, "node-1", 1.84, 0.184, 0.1), Told("w2", 0, 4, "", 1.3, 1.3, 1.0))
    )
    job = view_job({**a_manifest(), "status": {"stragglers": told.as_status()}})
    assert job.stragglers == (
        Straggler(3, "w1", "node-1", "1.8", "0.1"),
        Straggler(4, "w2", "", "1.3", "1"),
    )
    assert str(job.stragglers[0]) == (
        "rank 3 (w1 on node-1) works 1.8 times as long in a step as the group's median rank, "
        "whose work takes 0.1 s"
    )
    assert str(job.stragglers[1]).startswith("rank 4 (w2) works")
    assert view_job(a_manifest()).stragglers == view_stragglers({}) == ()


def test_why_names_the_slowest_and_its_node() -> None:
    found = diagnose(replace(JOB, stragglers=(SLOW,)), evidence_of("young"))
    assert not found.well
    said = why(SLOW)
    assert said.startswith("▲ char-lm runs at the wanted size")
    assert f"waits for slow ranks in each step: {SLOW}." in said
    assert f"kubectl describe node {SLOW.node}" in said
    assert f"kubectl cordon {SLOW.node}" in said
    assert f"kubectl delete pod -n {JOB.namespace} {SLOW.worker}" in said
    assert "slow, too" not in said


@pytest.mark.parametrize(
    ("stragglers", "words"),
    [
        ((SLOW, OTHER), f"1 other worker is slow, too: {OTHER.worker}."),
        (
            (SLOW, replace(SLOW, rank=7), OTHER, replace(OTHER, worker="w")),
            f"2 other workers are slow, too: {OTHER.worker}, w.",
        ),
    ],
)
def test_why_counts_the_other_workers(stragglers: tuple[Straggler, ...], words: str) -> None:
    assert words in why(*stragglers)


def test_why_sends_nobody_to_a_node_that_is_not_known() -> None:
    assert "kubectl describe node" not in why(replace(SLOW, node=""))


def test_a_job_that_does_not_train_waits_for_nobody() -> None:
    found = diagnose(replace(JOB, stragglers=(SLOW,), world=0), evidence_of("young"))
    assert "slow ranks" not in text_of(show_why(found), 400)


def test_status_marks_their_workers() -> None:
    def shown(*stragglers: Straggler) -> list[str]:
        view = show_status(
            replace(JOB, stragglers=stragglers), events_of("young"), moment_of("young")
        )
        return [line for line in text_of(view, 200).splitlines() if "times the median" in line]

    [line] = shown(SLOW)
    assert SLOW.worker in line
    assert line.endswith("▲ 1.8 times the median's work")
    assert shown() == []


def test_of_many_workers_the_slow_ones_are_shown() -> None:
    workers = tuple(
        replace(JOB.workers[0], name=f"w-{rank}", index=rank, rank=rank) for rank in range(50)
    )

    def shown(*stragglers: Straggler) -> str:
        view = show_status(
            replace(JOB, workers=workers, stragglers=stragglers),
            events_of("young"),
            moment_of("young"),
        )
        return text_of(view, 200)

    assert "w-49" in shown(replace(OTHER, worker="w-49"))
    assert "w-49" not in shown()


def test_each_worker_is_named_with_its_slowest_rank() -> None:
    found = slowest_by_worker([SLOW, replace(SLOW, rank=7, slowdown="1.4"), OTHER])
    assert list(found.items()) == [(SLOW.worker, SLOW), (OTHER.worker, OTHER)]
