from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from elastic_pytorch_client.reading.diagnosis import Diagnosis, Evidence, diagnose
from elastic_pytorch_client.reading.job_view import Condition, JobView, RootCause, Worker
from elastic_pytorch_client.reading.nodes import view_node
from elastic_pytorch_client.verbs.why import show_why

from tests.plugin.plugin_console import text_of
from tests.plugin.recorded_cluster import events_of, job_of, moment_of, recorded


def evidence_of(name: str, **changes: Any) -> Evidence:
    found = recorded(name)
    warnings = {
        event["involvedObject"]["name"]: f"{event['reason']}: {event['message']}"
        for event in found["events"]
        if event["involvedObject"]["kind"] == "Pod" and event["type"] == "Warning"
    }
    nodes = [view_node(node) for node in found["nodes"]]
    evidence = Evidence(found["pods"], nodes, events_of(name), warnings, moment_of(name))
    return replace(evidence, **changes)


def why(name: str, **changes: Any) -> Diagnosis:
    return diagnose(job_of(name), evidence_of(name, **changes))


def said(diagnosis: Diagnosis) -> str:
    return text_of(show_why(diagnosis), 400)


@pytest.mark.parametrize(
    ("name", "well", "lines"),
    [
        ("young", True, ["✔ char-lm runs at the wanted size: all 3 workers train."]),
        (
            "suspended",
            True,
            ["✔ sleeper is suspended.", "spec.suspend is true", "kubectl epj resume sleeper"],
        ),
        (
            "lost",
            False,
            ["✗ char-lm trains with 2 of 3 workers.", "1 pod: starting", "should pass"],
        ),
        (
            "failed",
            False,
            [
                "fails has failed: TooManyFailures.",
                "told to fail at step 5",
                "Correct the script",
                "It failed in fails-worker-1-vrp6p, rank 1.",
            ],
        ),
        (
            "too-large",
            False,
            [
                "2 pods",
                "have no node",
                "3 Insufficient cpu.",
                "It asks for 400 CPU; the largest node in use has",
                "request less CPU",
            ],
        ),
        (
            "no-image",
            False,
            ["container pytorch cannot start", "ErrImagePull", "Check the image's name"],
        ),
        (
            "no-volume",
            False,
            [
                'FailedMount: MountVolume.SetUp failed for volume "x" : '
                'configmap "missing" not found',
                "Create it, or correct its name in spec.template",
                "kubectl create configmap missing --from-file=PATH",
            ],
        ),
    ],
)
def test_recorded_jobs(name: str, well: bool, lines: list[str]) -> None:
    diagnosis = why(name)
    assert diagnosis.well is well
    for line in lines:
        assert line in said(diagnosis)


def test_spares_of_a_job_that_trains_are_counted_and_what_keeps_them_away_is_named() -> None:
    job = replace(job_of("young"), spares=2, ready_spares=2)
    found = diagnose(job, evidence_of("young"))
    assert found.well
    assert "all 3 workers train, and 2 of 2 spares ready." in said(found)
    missing = diagnose(replace(job, spares=1, ready_spares=0), evidence_of("young"))
    assert missing.well, "it is about to start"
    assert "all 3 workers train, and 0 of 1 spare ready." in said(missing)
    waiting = diagnose(
        replace(job, ready_spares=0), evidence_of("young", pods=recorded("too-large")["pods"])
    )
    assert not waiting.well
    assert "3 Insufficient cpu." in said(waiting)
    assert "kubectl epj resize" not in said(waiting)
    assert "the job then grows" not in said(waiting)


def test_says_for_how_long_a_set_up_goes_on() -> None:
    job, now = job_of("lost"), moment_of("lost")
    begun = [now - timedelta(seconds=seconds) for seconds in (30, 125)]
    preparing = [
        Worker(f"p{n}", 3 + n, None, "", "Preparing", state_since=since)
        for n, since in enumerate(begun)
    ]
    told = said(diagnose(replace(job, workers=(*job.members, *preparing)), evidence_of("lost")))
    assert "p1: Preparing (2 min 5 s), and 1 more." in told
    assert "spec.prepare" in told
    assert "should pass" not in told, "a set-up may take its time"


def test_saves_that_fail_again_and_again_are_named_with_what_to_do() -> None:
    message = (
        "at least 3 saves of a checkpoint in a row have failed in w0: "
        "No space left on device (/checkpoints)"
    )
    job = with_condition(job_of("young"), "Degraded", "CheckpointsFailing", message)
    assert job.at_wanted_size, "a wait for a size ends"
    found = diagnose(job, evidence_of("young"))
    assert not found.well
    assert "No space left on device (/checkpoints). Training goes on" in said(found)
    assert "Free or repair the volume of the checkpoints" in said(found)
    assert "should pass" not in said(found)


def with_condition(
    job: JobView, type_: str, reason: str, message: str, *, true: bool = True
) -> JobView:
    rest = tuple(c for c in job.conditions if c.type != type_)
    return replace(job, conditions=(*rest, Condition(type_, true, reason, message, job.started)))


def fails_again_and_again(job: JobView) -> JobView:
    message = "restarting after failure 2 of 3 allowed; rank 0 failed: ValueError: no"
    return replace(
        with_condition(job, "Running", "BackingOff", message, true=False), world=0, failures=2
    )


def gave_places_back(job: JobView) -> JobView:
    message = (
        "fewer than 3 workers had a node for 60 s; the next attempt is at 2026-01-01T00:00:00Z"
    )
    return replace(with_condition(job, "Running", "ScheduleTimeout", message, true=False), world=0)


def without_pod_group(job: JobView) -> JobView:
    refusal = (
        "the API server refuses: spec.scheduling.gangScheduler is Coscheduling, "
        "but the cluster has none"
    )
    message = f"0 of 3 workers are ready; {refusal}"
    return replace(
        with_condition(job, "Running", "WaitingForWorkers", message, true=False),
        world=0,
        refusals=(refusal,),
    )


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (
            gave_places_back,
            [
                "Fewer than 3 workers had a node for 60 s",
                "next attempt is at 2026-01-01T00:00:00Z.",
                "Other jobs can use",
            ],
        ),
        (
            without_pod_group,
            ["spec.scheduling.gangScheduler is Coscheduling", "Do what the message says"],
        ),
        (
            lambda job: replace(job, managed_by="kueue.x-k8s.io/multikueue"),
            ["is managed by kueue.x-k8s.io/multikueue", "create it again without spec.managedBy"],
        ),
        (
            lambda job: replace(job, managed_by="example.com/other"),
            ["is managed by example.com/other"],
        ),
        (
            lambda job: replace(job, seen=False),
            ["The operator has not seen the newest spec of char-lm", "kubectl get deployments -A"],
        ),
        (
            fails_again_and_again,
            [
                "fails soon after each start",
                "kubectl epj logs char-lm --tail 50",
                "2 of 3 allowed failures",
            ],
        ),
        (
            lambda job: replace(job, allowed=(1, 2, 4)),
            [
                "replicas is 3, which is not among resizePolicy.allowedReplicas (1, 2, 4)",
                "resize char-lm 2",
            ],
        ),
        (
            lambda job: replace(job, minimum=2, maximum=4, unit=2),
            ["replicas is 3, which is not a multiple of unitReplicas (2)", "resize char-lm 2"],
        ),
    ],
)
def test_what_else_can_be_the_matter(
    change: Callable[[JobView], JobView], lines: list[str]
) -> None:
    diagnosis = diagnose(change(job_of("lost")), evidence_of("lost"))
    assert not diagnosis.well
    for line in lines:
        assert line in said(diagnosis)


def test_a_job_of_a_fixed_size_waits_until_it_is_whole() -> None:
    job = replace(job_of("too-large"), elastic=False, minimum=2)
    shown = said(diagnose(job, evidence_of("too-large")))
    assert (
        "0 of 2 workers are ready, and its size is fixed, so training starts when all are ready."
        in shown
    )


def test_worker_that_waits_for_its_replacement_as_its_node_ends() -> None:
    why = (
        "char-lm-worker-1 leaves node n, which announces its end by taint "
        "karpenter.sh/disrupted, as soon as its replacement is ready"
    )
    shown = said(
        diagnose(
            with_condition(job_of("lost"), "Resizing", "NodeEnding", why),
            evidence_of("lost", pods=[]),
        )
    )
    assert f"C{why[1:]}." in shown
    assert "The group loses nothing if a node has room for the replacement." in shown


@pytest.mark.parametrize(
    ("exit_code", "signal", "node", "moves"),
    [
        (None, "", "node-a", True),
        (1, "", "node-a", False),
        (None, "SIGSEGV", "node-a", False),
        (None, "", "", False),
    ],
)
def test_why_says_how_to_move_a_worker_that_the_group_has_hung_for(
    exit_code: int | None, signal: str, node: str, moves: bool
) -> None:
    cause = RootCause(
        "char-lm-worker-2", 2, exit_code, signal, "no step; rank 2 is in its data loader", node
    )
    job = replace(job_of("young"), failures=1, root_cause=cause)
    shown = said(diagnose(job, evidence_of("young")))
    assert "rank 2 is in its data loader." in shown
    commands = (f"kubectl cordon {node}", f"kubectl delete pod -n {job.namespace} char-lm-worker-2")
    assert all((command in shown) is moves for command in commands)


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("WaitingForQuota", "kubectl get workloads.kueue.x-k8s.io -n "),
        ("KueueDisabled", "Set kueue.enabled in the operator's chart"),
        ("LeavingQueue", "It passes when the pods are gone"),
        ("QuotaRequested", "Check that Kueue runs"),
        ("TemplateMissing", "kubectl get cepjt"),
        ("InvalidSpec", "Correct the field"),
    ],
)
def test_a_job_without_quota(reason: str, advice: str) -> None:
    job = with_condition(
        job_of("too-large"),
        "Running",
        reason,
        "waits for quota in queue team: 2 more needed",
        true=False,
    )
    shown = said(diagnose(job, evidence_of("too-large", pods=[])))
    assert "Waits for quota in queue team: 2 more needed." in shown
    assert advice in shown


def test_failures_in_the_life_of_a_job() -> None:
    job = replace(job_of("young"), total_failures=4, backoff_limit=6)
    assert "4 of 6 failures that failurePolicy.backoffLimit allows" in said(
        diagnose(job, evidence_of("young"))
    )


def test_a_job_that_is_still_stopping() -> None:
    message = "spec.suspend is true: 2 workers are stopping"
    job = with_condition(job_of("suspended"), "Suspended", "Suspending", message, true=False)
    shown = said(diagnose(job, evidence_of("suspended")))
    assert "sleeper is being suspended: its workers save and stop." in shown
    assert message in shown


def test_a_job_made_just_now_gets_time_to_be_seen() -> None:
    job = replace(job_of("lost"), seen=False, created=moment_of("lost") - timedelta(seconds=2))
    assert "has not seen" not in said(diagnose(job, evidence_of("lost")))


def test_an_agent_that_is_not_heard_for_a_minute() -> None:
    job = job_of("lost")
    mute = replace(
        job, workers=tuple(replace(w, state="Starting") if w.rank == 1 else w for w in job.workers)
    )
    shown = said(diagnose(mute, evidence_of("lost", now=moment_of("lost") + timedelta(minutes=5))))
    assert (
        "char-lm-worker-2-w9n54 has run for more than a minute, "
        "and its agent has not contacted the operator" in shown
    )


def test_a_wait_does_not_hide_what_else_a_condition_says() -> None:
    held = with_condition(job_of("too-large"), "Running", "WaitingForQuota", "waits", true=False)
    rests = with_condition(held, "Degraded", "WaitingForQuota", "see Running", true=False)
    evidence = evidence_of("too-large", pods=[])
    assert "See Running." not in said(diagnose(rests, evidence)), "the same wait"
    ignored = with_condition(held, "Degraded", "FieldsIgnored", "to be removed: a", true=False)
    shown = said(diagnose(ignored, evidence))
    assert "Waits." in shown
    assert "To be removed: a." in shown
