from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from elastic_pytorch_client.reading.goodput import Goodput
from soak import timeline
from soak.checks import bucket, cluster, goodput, preparation, training
from soak.jobs import Expected
from soak.perform import Hit
from soak.plan import KINDS, SUSPEND
from soak.timeline import (
    Done,
    PodSeen,
    SetUpFailure,
    StatusSeen,
    Step,
    Stored,
    Usage,
    Violation,
    groups_of,
)

LIBRARY = Expected("job", total=6, epochs=2, samples=6)
PLAIN = Expected("job", library=False, total=6)
A, B, C = "job-worker-0-aaaaa", "job-worker-1-bbbbb", "job-worker-2-ccccc"
A2, B2 = "job-worker-0-yyyyy", "job-worker-1-zzzzz"
AGAIN, LEFT_OUT = "no step done twice", "no step left out"
Rows = Iterable[tuple[tuple[Any, ...], list[str]]]


def wrong(check: Callable[..., Iterable[Violation]], rows: Rows) -> list[Any]:
    """The rows of which a check finds other broken rules than it should."""
    judged = [(each, rules, [found.rule for found in check(*each)]) for each, rules in rows]
    return [row for row in judged if row[1] != row[2]]


def group(number: int, first: int, last: int, *pods: str, at: float = 0.0) -> list[Step]:
    """Steps, one a second: by default step n at second 100 + n."""
    begin, steps = at or 100.0 + first, range(first, last + 1)
    ranks = list(enumerate(pods))
    return [
        Step(begin + n - first, pod, n, len(pods), number, rank=rank)
        for n in steps
        for rank, pod in ranks
    ]


def hit(
    kind: str, at: float, until: float = 0.0, *pods: str, job: str = "job", node: str = ""
) -> Hit:
    return Hit(
        at,
        until or at,
        {**KINDS, SUSPEND.name: SUSPEND}[kind],
        kind,
        frozenset({job} - {""}),
        frozenset(pods),
        node,
    )


def status(
    at: float, world: int, failures: int = 0, *spares: str, state: str = "Running"
) -> StatusSeen:
    return StatusSeen(at, "job", state, world, failures, frozenset(spares))


def test_step_done_twice_or_left_out_is_found_unless_a_fault_excuses_it() -> None:
    two = group(1, 1, 3, A, B)
    lost = hit("kill-container", 103)
    sharded = replace(LIBRARY, sharded=True)
    shards, alone, plain = group(1, 1, 9, A, B, C), group(1, 1, 40, A), group(1, 1, 14, A, B)
    stopped = group(1, 1, 4, A, B) + group(2, 2, 6, C, B2, at=112)
    cut = hit("cut-node", 119, 146)
    refused = hit("refuse-writes", 102, 108)
    away = hit("kill-operators", 98, job="")
    again, twice = group(2, 3, 6, A, at=106), group(2, 2, 6, A, at=106)
    rows = [
        ((LIBRARY, two + group(2, 4, 6, A), []), []),
        ((LIBRARY, group(1, 2, 3, A, B), []), [LEFT_OUT]),
        ((LIBRARY, two + group(2, 5, 6, A), []), [LEFT_OUT]),
        ((LIBRARY, two + again, [hit("scale", 103)]), [AGAIN]),
        ((LIBRARY, two + again, [lost]), []),
        ((LIBRARY, two + twice, [lost]), [AGAIN]),
        ((LIBRARY, two + again, [replace(lost, jobs=frozenset({"other"}))]), [AGAIN]),
        ((LIBRARY, two + again, [hit("kill-container", 20)]), [AGAIN]),
        # the lost worker was a step ahead: its peers never got its last messages
        ((LIBRARY, two + group(1, 4, 4, C) + again, [lost]), []),
        # of shards, one worker may be lost
        ((sharded, shards + group(2, 4, 12, A, B, at=112), [lost]), []),
        ((sharded, shards + group(2, 3, 12, A, B, at=112), [lost]), [AGAIN]),
        ((sharded, shards + group(2, 1, 12, A, at=112), [lost]), []),
        # a planned change while no operator could plan it, or that outlasts the grace period
        ((LIBRARY, two + again, [hit("delete-pod", 99), away]), []),
        ((LIBRARY, two + again, [hit("drain", 103)], frozenset({B})), []),
        # a job that is stopped while its checkpoint folder takes no writes
        ((LIBRARY, stopped, [refused, hit("suspend", 104)]), []),
        ((LIBRARY, stopped, [replace(refused, until=103), hit("suspend", 104)]), [AGAIN]),
        # plain scripts go on from their checkpoint, also beside a group on a node that is cut off
        ((PLAIN, alone + group(2, 10, 60, B, at=120), [cut]), []),
        ((PLAIN, alone + group(2, 10, 60, B, at=120), [hit("scale", 119)]), [AGAIN]),
        ((PLAIN, plain + group(2, 4, 20, A, at=120), []), []),
        ((PLAIN, plain + group(2, 3, 20, A, at=120), []), [AGAIN]),
    ]
    assert not wrong(training.check_repeats, rows)


def test_group_sample_and_end_that_should_not_be_are_found() -> None:
    pairs = Expected("job", maximum=6, total=6, unit=2)
    orders = {(0, 1, 2, 3): [], (1, 0): ["units in order"], (0, 3): ["whole units"]}
    of_units = [
        ((pairs, group(1, 1, 1, *(f"job-worker-{n}-a" for n in order))), rules)
        for order, rules in orders.items()
    ]
    places = [(n + 1, n // 3, (n % 3 * 2, n % 3 * 2 + 1)) for n in range(6)]
    whole = [
        Step(100.0 + n, A, n, 1, 1, epoch=epoch, samples=samples) for n, epoch, samples in places
    ]
    once, done = "each sample once an epoch", [Done(120, A, (1.0, 2.0 + 1e-9))]
    groups = [
        ((LIBRARY, group(1, 1, 3, A, B) + group(2, 4, 6, A, B2)), []),
        ((LIBRARY, group(1, 3, 3, B, B2)), ["one worker of an index"]),
        (
            (replace(LIBRARY, maximum=1), group(1, 1, 3, A, B)),
            ["groups within minReplicas and maxReplicas"],
        ),
    ]
    samples = [
        ((LIBRARY, [*whole, replace(whole[1], group=2)]), []),
        ((LIBRARY, [*whole, replace(whole[1], group=2, samples=(2,))]), [once]),
        ((LIBRARY, [*whole, replace(whole[1], rank=1, samples=(3,))]), [once]),
    ]
    ends = [
        ((LIBRARY, group(1, 1, 6, A), done, (1.0, 2.0)), []),
        ((LIBRARY, group(1, 1, 6, A), done, (1.0, 2.001)), ["parameters of an undisturbed run"]),
        ((LIBRARY, group(1, 1, 5, A), done, (1.0, 2.0)), ["every job trains to its end"]),
    ]
    assert not wrong(training.check_groups, groups) + wrong(training.check_units, of_units)
    assert not wrong(training.check_samples, samples) + wrong(training.check_end, ends)


def test_end_of_a_pod_or_operator_that_no_fault_explains_is_found() -> None:
    ended = [PodSeen(100.0, "job", A, "n1", "deleted")]
    rule = ["no healthy pod ends"]
    pods: Rows = [
        ((ended, [], {"job": {A}}, {}), rule),
        ((ended, [], {"job": set()}, {}), []),  # it has not trained yet
        ((ended, [], {"job": {A}}, {"job": 99.0}), []),  # the training was over
        ((ended, [hit("delete-pod", 99, 0, A)], {"job": {A}}, {}), []),
        ((ended, [hit("delete-pod", 99, 0, B)], {"job": {A}}, {}), rule),
        ((ended, [hit("kill-node", 50, 90, job="", node="n1")], {"job": {A}}, {}), []),
        ((ended, [hit("kill-node", 50, 90, job="", node="n2")], {"job": {A}}, {}), rule),
        ((ended, [hit("scale", 99)], {"job": {A}}, {}), []),
    ]
    restarts, rule = (
        [PodSeen(100.0, "", "op-a", "n1", "ended with 1")],
        ["the operator keeps running"],
    )
    operators: Rows = [
        ((restarts, []), rule),
        ((restarts, [hit("kill-leader", 95, 96, "op-a", job="")]), []),
        ((restarts, [hit("kill-leader", 95, 96, "op-b", job="")]), rule),
        ((restarts, [hit("freeze-api", 95, 105, job="")]), []),
        ((restarts, [hit("drain", 95, 105, node="n1")]), rule),  # it evicts no operator
    ]
    assert not wrong(cluster.check_healthy_pods, pods) + wrong(cluster.check_operators, operators)


def test_wrong_status_growing_process_and_false_account_of_time_are_found() -> None:
    def usages(role: str, *descriptors: int) -> list[Usage]:
        return [
            Usage(20.0 * i, "n1/7", role, count, 0, 9, 50.0) for i, count in enumerate(descriptors)
        ]

    def told(training: int, other: int) -> Goodput:
        return Goodput({"Training": training, "Recovering": other})

    few = [Step(at, A, int(at), 2, 1) for at in (100.0, 150.0, 200.0)]
    rule = ["status true within 30 s"]
    late, away = [status(102, 3), status(150, 2)], [hit("freeze-api", 110, 140, job="")]
    statuses = [
        (("job", [status(102, 3), status(125, 2)], few, []), []),
        (("job", late, few, []), rule),
        (("job", late, few, away), []),
    ]
    growth = [
        ((usages("agent", 5, 30, 30, 40, 41, 42, 40, 41, 40),), []),
        ((usages("agent", 5, 30, 30, 40, 60, 80, 100, 120, 140),), ["nothing leaks"]),
        # It leads now, and has all agents' connections.
        ((usages("operator", *[12] * 5, *[54] * 4),), []),
    ]
    # two groups of a step in two seconds: 100 and 300 steps, a pause of 100 s, and a step that is
    # done again
    steps = [Step(20 + 2 * n, "w0", n, 2, 1) for n in range(1, 101)]
    steps += [Step(120 + 2 * n, "w0", n, 2, 2) for n in range(100, 401)]
    course = [status(0, 0, state=""), status(20, 2), status(1000, 0, state="Complete")]
    kill = [hit("kill-leader", 219, 225)]
    account = [
        ((LIBRARY, told(776, 224), steps, course, []), []),
        ((LIBRARY, told(774, 226), steps, course, []), ["goodput is what was seen"]),
        ((LIBRARY, told(824, 206), steps, course, []), ["no more time is told than there was"]),
        # No operator may have led in the pause.
        ((LIBRARY, told(900, 100), steps, course, kill), []),
    ]
    assert (
        not wrong(cluster.check_status, statuses)
        + wrong(cluster.check_growth, growth)
        + wrong(goodput.check_goodput, account)
    )


def test_failed_set_up_lost_worker_and_bucket_without_a_step_are_found() -> None:
    spare = replace(LIBRARY, maximum=2, spares=1)
    failed = [SetUpFailure(102.8, C, "leave")]
    two = group(1, 1, 3, A, B)
    lost = hit("kill-container", 103, 0, B)
    counted = [status(101, 2), status(104, 2, 1)]
    failures = [
        ((LIBRARY, group(1, 1, 3, A) + group(2, 4, 6, A, B), failed, [], []), []),
        ((LIBRARY, two + group(2, 4, 6, A), failed, [], []), ["a failed set-up changes no group"]),
        ((LIBRARY, two + group(2, 4, 6, A), failed, [], [lost]), []),
        ((LIBRARY, [], failed, counted, []), ["a failed set-up does not count"]),
        ((LIBRARY, [], failed, counted, [lost]), []),
    ]
    spares = [
        ((spare, two + group(2, 4, 6, A, C), [status(100, 2, 0, C)], [lost]), []),
        (
            (spare, two + group(2, 4, 6, A, A2), [status(100, 2, 0, C)], [lost]),
            ["a spare joins in the round of the loss"],
        ),
        ((spare, two + group(2, 4, 6, A, A2), [status(100, 2)], [lost]), []),  # none was ready
    ]
    job, three, six = replace(LIBRARY, bucket=True), Stored(103.5, (1, 3)), Stored(117, (2, 6))
    before, unread = group(1, 1, 4, A), Stored(104, None, read=True)
    good, behind = before + group(2, 4, 6, B, at=110), before + group(2, 3, 6, B, at=110)
    stored = [
        ((job, good, [three, six], []), []),
        ((job, behind, [three, six], []), ["no group begins behind a stored checkpoint"]),
        ((job, behind, [three, six], [hit("cut-node", 103, 112)]), []),
        ((job, good, [three, unread, six], []), ["a checkpoint can be loaded"]),
        ((job, good, [three], []), ["the last step is stored"]),
    ]
    assert (
        not wrong(preparation.check_set_up_failures, failures)
        + wrong(preparation.check_spares, spares)
        + wrong(bucket.check_bucket, stored)
    )


def test_records_of_processes_become_steps_of_numbered_groups() -> None:
    """The first of two groups of generation 8 could not claim it: its folder took no writes."""
    lines: list[dict[str, Any]] = []

    def tell(what: str, pod: str, **more: Any) -> None:
        lines.append(
            {
                "what": what,
                "at": 100.0 + len(lines),
                "worker": pod,
                "pid": 7,
                "RANK": int("-1-" in pod),
                **more,
            }
        )

    for generation, begin, pods in (
        (7, 0, (A, B)),
        (8, 2, (A, B)),
        (8, 2, (A2, B2)),
        (9, 4, (A2, B2)),
    ):
        for what, step in (("restored", begin), ("step", begin + 1), ("step", begin + 2)):
            for pod in pods:
                tell(what, pod, generation=generation, step=step)
    tell("done", A2, parameters=[1.0])
    tell("set-up fails", C, how="kill")
    records = timeline.read_records("job", lines)
    groups = [(each.first, each.last, each.members) for each in groups_of(records.steps)]
    assert groups == [(1, 2, {A, B}), (3, 4, {A, B}), (3, 4, {A2, B2}), (5, 6, {A2, B2})]
    assert (
        [end.parameters for end in records.done],
        [it.pod for it in records.failures],
    ) == ([(1.0,)], [C])
