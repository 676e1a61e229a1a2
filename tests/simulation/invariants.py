"""What must always hold in a simulated world: each function yields what was not kept."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.api.conditions import find_condition, has_ended, is_true
from elastic_pytorch_operator.api.manifest import Manifest

from tests.simulation.api_server import ENDED
from tests.simulation.groups import Group, kept_step
from tests.simulation.story import Story

if TYPE_CHECKING:
    from tests.simulation.jobs import UsersJob
    from tests.simulation.world import World

OVERUSE_SECONDS = 10.0
NEW_SECONDS = 30.0  # for which a leader may not have heard all agents
# The table in architecture.md, not the code of it, and what the loss of a last heartbeat takes.
FOUND_SECONDS = 3.0 + 5.0
RECONNECT_SECONDS = 5.0  # the same: silences count from then on after the operator has heard none
FOUND_BY_NEW_SECONDS = 120.0  # the same
GONE_SECONDS = 10.0  # after the end of a worker, within which a round may still name it
# What happens to the operator alone, and what no group may be lost for.
OF_THE_OPERATOR = {
    *("kill_leader", "kill_operators", "cut_leader", "suspend_machine", "close_service"),
    *("trouble_api", "slow_api", "break_watches", "stall_watch", "lag_watches"),
}
# After which quota may just have been taken back, or a replica may not know which pods there are.
UNSURE = {
    *("kill_leader", "kill_operators", "cut_leader", "suspend_machine", "trouble_api"),
    *("break_watches", "stall_watch", "lower_quota", "change_queue", "delete_workload", "suspend"),
}
LOSSES = (names.WORKER_LOST, names.WORKER_FAILED, names.WORKER_LEAVING, names.BELOW_MINIMUM)
PODS_PER_ACT = 20  # of a job: all of its pods, about three times
STATUSES_PER_HOUR, EVENTS_PER_HOUR, PODS_PER_HOUR = 1500, 400, 300


class Violation(AssertionError):
    """Something that must always hold does not.

    Attributes:
        story: what has happened.
    """

    def __init__(self, story: Story, found: list[str]) -> None:
        super().__init__("; ".join(found))
        self.story = story


def check_round(world: "World", job: str, members: list[str]) -> Iterator[str]:
    """A round has one living worker of each index, none that is deleted, and not too many."""
    indices = [member.rsplit("-", 2)[1] for member in members]
    if len(set(indices)) != len(indices):
        yield f"{job}: a round has two workers of one index: {members}"
    for process in world.processes:
        if process.leads and (deleted := process.connection.deleted.intersection(members)):
            yield f"{job}: a round has {', '.join(sorted(deleted))}, whose deletion was asked for"
    for member in members:
        gone = world.gone_at.get(member)
        if gone is not None and world.loop.time() > gone + GONE_SECONDS and not world.is_troubled():
            yield (
                f"{job}: a round has {member}, which has been gone for "
                f"{world.loop.time() - gone:.0f} s"
            )
    users = world.jobs.get(job.partition("/")[2])
    if users is not None and len(members) > max(world.most_of(users)):
        yield f"{job}: a round of {len(members)}, of at most {max(world.most_of(users))}"


def check_deletion(world: "World", job: str, pod: str) -> Iterator[str]:
    """The operator deletes no pod that its newest round names, if a member can report the round.

    A new leader believes an agent that knows of a newer one: then all have to stop.
    """
    name = job.partition("/")[2]
    members, agents = world.members.get(name, ()), list(world.living_agents())
    heard = any(agent.reachable for agent in agents if agent.pod.name in members)
    misled = any(agent.job == name and "newest" in agent.lies for agent in agents)
    if pod in members and heard and not misled:
        yield f"{job}: {pod} was deleted, and the newest round has it"


def check_group(world: "World", group: Group) -> Iterator[str]:
    """No two heard rounds train at once, and none begins behind what a living worker has."""
    for other in world.groups.values():
        heard = all(member.reachable and not member.shut_out for member in other.members)
        if (
            other is not group
            and other.job_uid == group.job_uid
            and other.trains
            and other.size
            and heard
        ):
            yield (
                f"rounds {other.number} and {group.number} of {group.members[0].job} train at once"
            )
    living = [a for a in world.living_agents() if a.job_uid == group.job_uid]
    heard = [a for a in living if a.reachable and a.connected and a.state != "leaving"]
    others = [agent for agent in heard if agent not in group.members]
    if (kept := kept_step((agent.part for agent in others), group.training.unit)) >= group.first:
        job = others[0].job
        yield f"round {group.number} of {job} begins with {group.first}, and others have {kept}"


def check_grant(world: "World", pod: Manifest) -> Iterator[str]:
    """No pod of a queued job is made without quota for it, while none is taken back."""
    uid = pod["metadata"]["ownerReferences"][0]["uid"]
    acts = {line.what.split()[1] for line in world.story.since_quiet() if line.who == "act"}
    if kueue.LABEL_LOCAL_QUEUE not in pod["metadata"]["labels"] or acts & UNSURE:
        return
    lasting = [p for p in world.server.all_of("Pod") if p["status"].get("phase") not in ENDED]
    mine = [p for p in lasting if p["metadata"]["ownerReferences"][0]["uid"] == uid]
    there, granted = sum(map(world.is_up, mine)), world.server.granted(uid)
    if there > granted:
        yield f"{pod['metadata']['name']} is one of {there} pods, and there is quota for {granted}"


def check_losses(world: "World") -> Iterator[str]:
    """A lost member is found as the table of silence promises; later by a new leader."""
    for group in world.groups.values():
        name, delays = group.members[0].job, world.server.trouble.delays
        if delays or group.formed_at is None or world.newest.get(name) != group.number:
            continue
        lost = min(member.lost_at for member in group.members)
        known = lost > world.led_since + NEW_SECONDS
        heard = (
            m for m in group.members if m.connected and m.round == group.number and not m.ended
        )
        since = max(
            lost,
            min((member.heard_since + RECONNECT_SECONDS for member in heard), default=math.inf),
        )
        late = world.loop.time() - (
            since if known else max(since, world.led_since + FOUND_BY_NEW_SECONDS)
        )
        waits = any(member.state == "succeeded" for member in group.members)
        if late > FOUND_SECONDS and not waits and not _backs_off(world, name):
            yield (
                f"{name}: a member of round {group.number} has been lost for {late:.1f} s, "
                "and no round follows"
            )


def _backs_off(world: "World", name: str) -> bool:
    """Whether a job waits after failures before its next round."""
    job = world.jobs.get(name)
    running = find_condition(world.status(job), names.RUNNING) if job else None
    return (running or {}).get("reason") == names.BACKING_OFF


def check_quota(world: "World") -> Iterator[str]:
    """No more pods of queued jobs run than have quota, but while they are deleted."""
    if world.is_troubled():
        world.over_quota_since = None
        return
    pods = (pod for pod in world.server.all_of("Pod") if pod["status"].get("phase") not in ENDED)
    there = sum(
        kueue.LABEL_LOCAL_QUEUE in pod["metadata"]["labels"]
        and not pod["metadata"].get("deletionTimestamp")
        and world.is_up(pod)
        for pod in pods
    )
    if there <= world.server.used:
        world.over_quota_since = None
    elif world.over_quota_since is None:
        world.over_quota_since = world.loop.time()
    elif world.loop.time() > world.over_quota_since + OVERUSE_SECONDS:
        yield f"{there} pods run by quota for {world.server.used}"


def check_writers(world: "World") -> Iterator[str]:
    """Only the replica that leads sends writes."""
    for process in world.processes:
        yield from (
            f"{process.name} sent {write}, and another one leads"
            for write in process.connection.strays
        )


def check_ends(world: "World") -> Iterator[str]:
    """A job that has ended stays ended, and has no pods that run."""
    for job in world.jobs.values():
        status = world.status(job)
        ended = next(
            (type_ for type_ in (names.COMPLETE, names.FAILED) if is_true(status, type_)), ""
        )
        before = world.ends.setdefault(job.name, ended)
        if before and before != ended:
            yield f"{job.name} was {before}, and is {ended or 'not ended'}"
        world.ends[job.name] = ended


def check_resize(story: Story) -> Iterator[str]:
    """After a change of size alone, no pod is made once another was no longer wanted."""
    lines = story.since_quiet()
    acts = [number for number, line in enumerate(lines) if line.who == "act"]
    words = lines[acts[0]].what.split() if len(acts) == 1 else []
    if len(words) < 3 or words[1] not in ("scale", "change_spares"):  # of an act without a job: 2
        return
    resized = "/" + words[2].rstrip(":")
    reduced = False
    for line in lines[acts[0] :]:
        if not line.who.endswith(resized):
            continue
        if line.what.startswith("deleted pod") and line.what.endswith("is no longer wanted"):
            reduced = True
        elif reduced and line.what.startswith("created pod"):
            yield f"{line.who} was made smaller, and {line.what}"


def check_churn(story: Story) -> Iterator[str]:
    """Few pods are made for a job between one quiet and the next, whatever ends them."""
    lines = story.since_quiet()
    most = PODS_PER_ACT * (1 + sum(line.who == "act" for line in lines))
    made = Counter(line.who for line in lines if line.what.startswith("created pod"))
    yield from (f"{count} pods were made for {job}" for job, count in made.items() if count > most)


def check_leaders(story: Story) -> Iterator[str]:
    """A group stands while only the operator or its API server is in trouble."""
    lines = story.since_quiet()
    acts = {line.what.split()[1] for line in lines if line.who == "act"}
    alone = (
        acts and acts <= OF_THE_OPERATOR and not any(line.what.startswith("is ") for line in lines)
    )
    for line in lines if alone else ():
        if line.what.startswith("round") and line.what.endswith(LOSSES):
            yield f"{line.who} lost a group that could train on: {line.what}"


def check_settled(world: "World") -> Iterator[str]:
    """After quiet, each job is as its user wants it and says so; nothing else is left."""
    running = world.running_pods()
    for job in world.jobs.values():
        yield from _check_job(world, job, running[job.name])
    uids = {world.manifest(job)["metadata"]["uid"] for job in world.jobs.values()}
    for kind in ("Pod", kueue.WORKLOAD, "Service"):
        for found in world.server.all_of(kind):
            owner = (found["metadata"].get("ownerReferences") or [{}])[0].get("uid")
            if owner not in uids:
                yield f"{kind} {found['metadata']['name']} is left of a job that is gone"


def _check_job(world: "World", job: "UsersJob", running: Sequence[Manifest]) -> Iterator[str]:
    status = world.status(job)
    if has_ended(status):
        if running:
            yield f"{job.name} has ended, and has {len(running)} pods"
        return
    if job.spec.get("suspend"):
        if running or (find_condition(status, names.SUSPENDED) or {}).get("status") != "True":
            yield f"{job.name} is to be suspended, and has {len(running)} pods"
        return
    group = world.training_group(job)
    size = group.size if group else 0
    if status.get("worldSize", 0) != size:
        yield f"{job.name} trains with {size}, and its status says {status.get('worldSize', 0)}"
    wanted = world.expected_size(job)
    if job.invalid:
        return
    if job.queued:
        yield from _check_queued(world, job, running, size)
        return
    if wanted is None:
        return
    if size != wanted:
        yield (
            f"{job.name} trains with {size} of {wanted}; its status: {status.get('state')}, "
            f"{_why(status)}"
        )
    elif len(running) != wanted + job.spec.get("spares", 0):
        yield (
            f"{job.name} has {len(running)} pods for {wanted} workers and "
            f"{job.spec.get('spares', 0)} spares"
        )


def _check_queued(
    world: "World", job: "UsersJob", running: Sequence[Manifest], size: int
) -> Iterator[str]:
    granted = world.server.granted(str(world.manifest(job)["metadata"]["uid"]))
    if len(running) > granted:
        yield f"{job.name} has {len(running)} pods, and has quota for {granted}"
    elif size < job.sizes[0] <= granted:
        yield (
            f"{job.name} trains with {size}, and has quota for {granted}; {_why(world.status(job))}"
        )
    for pod in running:
        name = pod["metadata"]["annotations"].get(kueue.ANNOTATION_WORKLOAD, "")
        workload = world.server.find(kueue.WORKLOAD, name)
        if workload is not None and requests(
            workload["spec"]["podSets"][0]["template"]
        ) != requests(pod):
            yield f"{pod['metadata']['name']} runs by quota for another template"


def requests(pod: Manifest) -> object:
    """What the training container of a pod, or of a template, requests."""
    containers = pod["spec"]["containers"]
    return next(
        container["resources"]["limits"]["cpu"]
        for container in containers
        if container["name"] == "pytorch"
    )


def _why(status: dict[str, object]) -> str:
    found = (find_condition(status, type_) or {} for type_ in (names.DEGRADED, names.RUNNING))
    return "; ".join(f"{c.get('reason')}: {c.get('message')}" for c in found if c)


def check_rates(world: "World") -> Iterator[str]:
    """The writes, events and new pods of a job in an hour are bounded."""
    counts = world.server.counts
    for name, found, most in (
        ("statuses", counts.statuses, STATUSES_PER_HOUR),
        ("events", counts.events, EVENTS_PER_HOUR),
        ("pods", counts.pods, PODS_PER_HOUR),
    ):
        for (uid, hour), count in found.items():
            if count > most:
                yield f"{count} {name} of job {uid} in hour {hour}"
