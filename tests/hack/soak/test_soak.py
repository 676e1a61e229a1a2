import json
import subprocess
import sys
from base64 import b64encode
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from elastic_pytorch_client.reading.goodput import Goodput
from elastic_pytorch_client.reading.job_view import JobView, view_job
from elastic_pytorch_operator.agents.stream_lines import MAX_LINE_BYTES
from measure.cluster import LEASE, ClusterDriver
from measure.recorded_job import scripts
from soak.__main__ import parse_options
from soak.checks.cluster import MEMORY_LIMIT_MIB
from soak.hostile import acts, manifests
from soak.hostile.manifests import namespaces_of
from soak.inject import choose, how
from soak.jobs import SCRIPTS, SORTS, Expected, manifest, undisturbed
from soak.observe import Observer
from soak.perform import Hit, perform
from soak.plan import KINDS, Act, Fault
from soak.report import compare, pauses_by_job, show, to_json
from soak.stage import Stage
from soak.timeline import (
    Done,
    PodSeen,
    Records,
    SetUpFailure,
    StatusSeen,
    Step,
    Usage,
    Violation,
)
from soak.verdict import Seen, table, violations

from tests.job_schema import VALIDATOR
from tests.paths import ROOT

POD = "job-worker-0-aaaaa"
DRAIN = Hit(103.2, 108, KINDS["drain"], "drain n1", frozenset({"job"}), node="n1")
CTR = "ctr -n k8s.io task kill --all --signal SIGKILL"


def test_plan_is_made_again_from_a_report(tmp_path: Path) -> None:
    options = ["--seed", "7", "--minutes", "2", "--faults", "settled", "--jobs", "plain"]
    first, file = parse_options(options), tmp_path / "earlier.json"
    earlier = {"seed": 7, "minutes": 2, "jobs": ["plain"], "acts": [asdict(a) for a in first.acts]}
    file.write_text(json.dumps(earlier | {"pauses": {}}))
    assert parse_options(["--replay", str(file)]).acts == first.acts
    compared = ["--compare", str(file), "--hostile"]
    assert parse_options([*options, *compared]).acts == first.acts
    for other in (["--jobs", "library"], ["--seed", "8"]):
        with pytest.raises(SystemExit):
            parse_options([*options, *other, *compared])


class Cluster:
    """Notes what is asked of it; has two operators, of which op-b leads; cordons fail."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        short = path.rpartition("/namespaces/")[2]
        if method != "GET":
            self.done.append(f"{method} {short} {json.dumps(body)[:30] if body else ''}".strip())
        data = {"trust.json": b64encode(b'{"serving": {"made_at": 0}}').decode()}
        spec = {"replicas": 2, "holderIdentity": "op-b" if short.endswith(LEASE) else ""}
        return {"items": [a_pod("op-b", "", 0), a_pod("op-a", "", 1)], "data": data, "spec": spec}

    async def docker(self, *arguments: str) -> str:
        self.done.append(" ".join(("docker", *arguments)))
        return ""

    async def kubectl(self, *arguments: str) -> str:
        self.done.append(" ".join(("kubectl", *arguments)))
        if arguments[0] == "cordon":
            raise OSError("no")
        return "1.5"


def a_pod(name: str, job: str, index: int) -> dict[str, Any]:
    labels = {"elasticpytorch.dev/job-name": job, "elasticpytorch.dev/worker-index": str(index)}
    container = {"name": "pytorch" if job else "operator", "containerID": f"containerd://c-{name}"}
    status = {"phase": "Running", "containerStatuses": [container]}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"nodeName": f"n{index}"},
        "status": status,
    }


async def test_each_fault_is_made_to_its_target_and_undone(tmp_path: Path) -> None:
    cluster: Any = Cluster()
    driver, hits = ClusterDriver(cluster, cluster, "ns"), list[Hit]()
    observer = Observer(driver, tmp_path, ["n0", "n1"])
    workers = [("library", 0), ("library", 1), ("plain", 0)]
    observer.pods = {f"{job}-{i}": a_pod(f"{job}-{i}", job, i) for job, i in workers}
    told = {"what": "step"}
    observer.lines["library"] = [told | {"worker": f"library-{i}", "pid": 7 + i} for i in range(2)]
    for name in ("library", "plain"):
        spec = {"replicas": 2, "minReplicas": 1, "maxReplicas": 3}
        observer.jobs[name] = view_job({"metadata": {"name": name}, "spec": spec})
        (tmp_path / name).mkdir()
    sorts = [SORTS["library"], SORTS["plain"]]
    stage = Stage(driver, observer, tmp_path, ["n0", "n1"], sorts, 0.0, print)

    async def make(kind: str, number: int) -> None:
        act = Act(0.0, (Fault(kind, number, 0.0),))
        await perform(act, partial(choose, stage), hits, lambda _: None, stage.jobs_on)

    kill = (
        "kubectl -n ns exec library-0 -c pytorch -- python3 -c import os, time; "
        "print(time.time(), flush=True); os.kill(7, 9)"
    )
    scale = "PATCH ns/elasticpytorchjobs/plain/scale"
    secret = "PATCH elastic-pytorch-system/secrets/elastic-pytorch-operator-tls"
    operators = [f"docker exec n0 {CTR} c-op-b", f"docker exec n1 {CTR} c-op-a"]
    made: dict[tuple[str, int], tuple[list[str], str, str, str]] = {
        ("kill-process", 0): ([kill], "library", "", ""),
        ("kill-container", 1): ([f"docker exec n1 {CTR} c-library-1"], "library", "library-1", ""),
        ("delete-pod", 2): (["DELETE ns/pods/library-0"], "library", "library-0", ""),
        ("scale", 1): ([f'{scale} {{"spec": {{"replicas": 1}}}}'], "plain", "", ""),
        ("cordon", 1): (["kubectl cordon n1", "kubectl uncordon n1"], "library", "", ""),
        ("pause-node", 1): (["docker pause n1", "docker unpause n1"], "library", "", "n1"),
        # The leader's: all jobs.
        ("pause-node", 0): (["docker pause n0", "docker unpause n0"], "", "", "n0"),
        ("kill-leader", 0): (operators[:1], "", "op-b", ""),
        ("kill-operators", 0): (operators, "", "op-a op-b", ""),
        ("rotate-certificate", 0): (
            [secret, "DELETE elastic-pytorch-system/pods/op-b"],
            "",
            "",
            "",
        ),
        ("kill-api", 0): (
            ["docker exec elastic-pytorch-control-plane sh -c pkill -KILL -x kube-apiserver"],
            "",
            "",
            "",
        ),
        ("refuse-writes", 0): ([], "library", "", ""),
    }
    seen = {}
    for kind, number in made:
        cluster.done.clear()
        await make(kind, number)
        hit, done = hits[-1], [it.partition(' {"data')[0] for it in cluster.done]
        seen[kind, number] = (
            done,
            " ".join(sorted(hit.jobs - {""})),
            " ".join(sorted(hit.pods)),
            hit.node,
        )
    assert seen == made
    assert [hit.kind.name for hit in hits if "perhaps not: OSError no" in hit.what] == ["cordon"], (
        "it is undone nevertheless"
    )
    assert (tmp_path / "library").stat().st_mode & 0o777 == 0o777, "writes are allowed again"
    observer.pods.clear()
    await make("kill-container", 0)
    assert len(hits) == len(made), "without a target nothing is done"
    assert all(map(how, KINDS))


def test_jobs_and_what_the_hostile_tenant_writes_pass_validation() -> None:
    sorts = list(SORTS.values())
    made = [manifest(sort, 180, "folder") for sort in [*sorts, *undisturbed(sorts).values()]]
    written = {**acts.UNBUILDABLE_QUANTITIES, **acts.UNBUILDABLE_TEMPLATES, **acts.LARGE}
    hostile = [manifests.job(name, changes=changes) for name, changes in written.items()]
    made += [
        *hostile,
        manifests.speaking_job("claims", namespaces_of("soak-1")),
        manifests.wordy_job(namespaces_of("soak-1")),
    ]
    sizes = [len(json.dumps(job)) for job in hostile]
    assert 1_400_000 < max(sizes) < 1_500_000, "as large as etcd takes it"
    assert not [
        (job["metadata"]["name"], str(e)) for job in made for e in VALIDATOR.iter_errors(job)
    ]
    turns = [acts.unreadable(turn)["annotations"] for turn in range(40)]
    assert {next(iter(turn.values())) for turn in turns} == set(acts.UNREADABLE_TEXTS)
    programs = {**manifests.SPEAKING, **manifests.PROGRAMS}.values()
    assert {script.split()[0] for script, _ in programs} <= manifests.scripts("")["data"].keys()
    pods = (manifest(sort, 180, "")["spec"]["template"]["spec"] for sort in sorts)
    run = {pod["containers"][0]["args"][0].removeprefix("/scripts/") for pod in pods}
    assert run <= scripts(SCRIPTS)["data"].keys()


def a_view(state: str, **goodput: int) -> JobView:
    return replace(view_job({}), state=state, goodput=Goodput(goodput))


def whole() -> Seen:
    """A job of six steps that lost two seconds by a drain."""
    numbers = ((100, 1, 1), (101, 2, 1), (102, 3, 1), (103, 4, 1), (106, 5, 2), (107, 6, 2))
    steps = [Step(at, POD, number, 1, group) for at, number, group in numbers]
    return Seen(
        expected={"job": Expected("job", library=False, maximum=2, total=6)},
        hits=[DRAIN],
        records={"job": Records(steps, [Done(107.5, POD, ())])},
        undisturbed={},
        statuses={"job": [StatusSeen(101, "job", "Running", 1)]},
        ends=[PodSeen(109, "job", POD, "n1", "deleted")],
        usages=[],
        jobs={"job": a_view("Complete")},
    )


def test_verdict_names_each_promise_that_was_not_kept() -> None:
    def found(**seen: Any) -> list[str]:
        return [violation.rule for violation in violations(replace(whole(), **seen))]

    ended = [PodSeen(105, "job", POD, "n2", "ended")]
    unread = Violation("a checkpoint can be loaded", "job", 104, "none can")
    states = [StatusSeen(100, "job", "Running", 1), StatusSeen(1100, "job", "Complete", 0)]
    account = {"job": a_view("Complete", Training=100, Recovering=900)}
    commits = {"job": replace(whole().expected["job"], library=True)}
    assert found() == found(hostile={"flood": 7}) == []
    records = whole().records["job"]
    failed = replace(records, failures=[SetUpFailure(104.8, POD, "kill")])
    assert found(ends=ended, records={"job": failed}) == []
    broken = found(jobs={"job": a_view("Failed")}, left=["pods/x"], violations=[unread])
    assert broken == ["nothing leaks", "every job ends Complete", unread.rule]
    assert found(restarts=[PodSeen(105, "", "op", "n1", "ended")]) == ["the operator keeps running"]
    assert found(ends=ended) == ["no healthy pod ends"]
    values = yaml.safe_load(
        (ROOT / "charts" / "elastic-pytorch-operator" / "values.yaml").read_text()
    )
    assert values["resources"]["limits"]["memory"] == f"{MEMORY_LIMIT_MIB:.0f}Mi"
    held = [Usage(105, "n1/7@1", "operator", 9, 1, 2, mib) for mib in (255.9, 256.0)]
    assert found(usages=held[:1]) == []
    assert found(usages=held) == ["operators stay below half of their memory limit"]
    assert found(hostile={"webhook": 0}) == ["the hostile tenant does all its acts"]
    assert found(expected=commits, statuses={"job": states}, jobs=account) == [
        "goodput is what was seen"
    ]
    assert found(records={"job": replace(records, done=[])}) == ["every job trains to its end"]


def test_report_shows_pauses_by_kind_and_job_and_what_was_done_around_a_violation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen = whole()
    seen.hits = [DRAIN, replace(DRAIN, kind=KINDS["scale"], jobs=frozenset({"other"}))]
    assert table(seen) == [(KINDS["scale"], 1, None), (KINDS["drain"], 1, (3, 3, 3))]
    assert pauses_by_job(seen) == {"job": (3, 3, 3)} == to_json(seen, [])["pauses"]
    compared = compare({"job": (1, 2, 9), "new": (1, 1, 1)}, {"job": (1, 1, 3), "gone": (1, 1, 1)})
    assert [too_long for _, too_long in compared] == [False, False, True]
    show(seen, [Violation("no step left out", "job", 110.0, "step 5")], compared)
    text = capsys.readouterr().out
    said = [
        "NOT KEPT: no step left out: job: step 5",
        "  -6.8 to   -2.0 s: drain n1",
        "| 3.00 | 3.00 | 3.00 |",
    ]
    said += [
        f"| {KINDS['scale'].title} | 1 | - | - | - |",
        f"| {KINDS['drain'].title} | 1 | 3.0 | 3.0 | 3.0 |",
    ]
    said += [
        "job, longest of the pauses: 9.00 s, 3.00 times the 3.00 s of before: more than 2 times"
    ]
    assert not [words for words in [*said, "2 faults, 1 violations"] if words not in text]


def test_claims_are_heartbeats_as_long_as_the_operator_takes_them() -> None:
    code = """import claims, json
lines = [line for turn in (1, 99999) for line in (claims.claim(turn), claims.failure(turn))]
print(json.dumps([[len(line), json.loads(line)["state"]] for line in lines]))"""
    folder = str(ROOT / "hack" / "soak" / "scripts" / "hostile")
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    ).stdout
    assert json.loads(told) == [[MAX_LINE_BYTES - 1, "running"], [MAX_LINE_BYTES - 1, "failed"]] * 2
