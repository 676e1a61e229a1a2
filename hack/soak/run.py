"""A run: makes the jobs and the faults, returns what was seen, and removes what it has made."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

from elastic_pytorch_client import names
from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_local.faults.watcher import Waited, background, until
from measure.api import jobs_path
from measure.engine import Say
from measure.kind_cluster import report
from measure.program import GONE_SECONDS, remove, session
from measure.recorded_job import open_to_all, shared_folder

from soak.back_off import end_back_off
from soak.bucket import read_notes, start_server
from soak.hostile.manifests import namespaces_of
from soak.hostile.tenant import Tenant, hostile_tenant, remove_tenants
from soak.inject import choose, suspend_and_resume
from soak.jobs import SCRIPTS, Sort, expected, manifest, undisturbed
from soak.observe import Observer
from soak.perform import Hit, perform
from soak.plan import Act
from soak.stage import LOOK_SECONDS, Stage, insist
from soak.timeline import read_records
from soak.verdict import Seen

START_SECONDS = 900.0  # until all jobs train and the undisturbed ones are done
# After the last fault, without a record of any job, although one has not ended.
QUIET_SECONDS = 600.0
HOSTILE_SECONDS = 300.0  # until a hostile tenant has done each of its acts once


async def run(
    acts: Sequence[Act], sorts: list[Sort], seconds: float, say: Say, *, hostile: bool
) -> Seen:
    """Raises Waited if the jobs do not begin to train, or the tenant cannot do all its acts."""
    async with session("soak", SCRIPTS, say) as made:
        await insist(partial(remove_tenants, made.driver.api))  # of an earlier run that was killed
        for sort in _made(sorts):
            if not sort.bucket:
                open_to_all(made.folder / sort.name)
        say(f"jobs: {', '.join(sort.name for sort in sorts)}")
        observer = Observer(made.driver, made.folder, made.nodes)
        stage = Stage(made.driver, observer, made.folder, made.nodes, sorts, seconds, say)
        async with background(observer.run(), end_back_off(stage)):
            tenant = await _let_in(stage, made.stack) if hostile else None
            return await _act(stage, acts, tenant)


async def _let_in(stage: Stage, stack: AsyncExitStack) -> Tenant:
    """Begins the hostile tenant's acts, which last until the stack is left."""
    namespaces = namespaces_of(stage.driver.namespace)
    shared = shared_folder(stage.driver.commands, namespaces.own)
    folder = await stack.enter_async_context(shared)
    removal = partial(remove_tenants, stage.driver.api)
    stack.push_async_callback(remove, removal, "the hostile tenant's objects are", stage.say)
    tenant = await stack.enter_async_context(hostile_tenant(stage.driver.api, namespaces, folder))
    stage.say(f"a hostile tenant has namespaces {', '.join(namespaces)}")
    return tenant


async def _act(stage: Stage, acts: Sequence[Act], tenant: Tenant | None) -> Seen:
    hits, say = list[Hit](), stage.say

    def tell(number: int, text: str) -> None:
        say(f"{number}/{len(acts)} {text}")

    await _start(stage)
    before = await _all_acts(tenant, say) if tenant else {}
    toggled = [suspend_and_resume(stage, sort.name, hits) for sort in stage.sorts if sort.suspended]
    async with background(*toggled):
        for number, act in enumerate(acts, 1):
            if not stage.running_jobs():
                say("all jobs have ended: the other acts are left out")
                break
            await perform(act, partial(choose, stage), hits, partial(tell, number), stage.jobs_on)
    say("no more faults: the jobs train to their ends")
    while stage.running_jobs():
        if stage.observer.quiet_seconds() > QUIET_SECONDS:
            running = ", ".join(stage.running_jobs())
            say(f"no job has told of anything for {QUIET_SECONDS:.0f} s: {running} will not end")
            break
        await asyncio.sleep(LOOK_SECONDS)
    done = tenant.counts() if tenant else {}
    jobs = dict(stage.observer.jobs)
    await asyncio.to_thread(report, stage.driver.namespace)
    seen = _seen(stage, hits, jobs, await _delete_jobs(stage))
    if tenant:
        seen.hostile = {act: count - before[act] for act, count in done.items()}
    return seen


async def _all_acts(tenant: Tenant, say: Say) -> dict[str, int]:
    """Waits until the tenant has done each act, and returns how often: a run shows no less."""
    what = "all acts of the hostile tenant"
    try:
        await until(lambda: not tenant.missing(), seconds=HOSTILE_SECONDS, what=what)
    except Waited as waited:
        raise Waited(f"{waited}: {', '.join(tenant.missing())}") from None
    say("the hostile tenant has done all its acts")
    return tenant.counts()


def _made(sorts: Sequence[Sort]) -> list[Sort]:
    return list(dict.fromkeys([*undisturbed(sorts).values(), *sorts]))


async def _start(stage: Stage) -> None:
    namespace, ask = stage.driver.namespace, stage.driver.api.ask
    for sort in stage.sorts:
        if sort.bucket:
            await start_server(stage, sort.name)
    for sort in _made(stage.sorts):
        await ask("POST", jobs_path(namespace), manifest(sort, stage.seconds, namespace))
    alone = {sort.name for sort in undisturbed(stage.sorts).values()}

    def begun() -> bool:
        jobs, lines = stage.observer.jobs, stage.observer.lines
        done = all(name in jobs and jobs[name].complete for name in alone)
        return done and all(
            any(line["what"] == "step" for line in lines[sort.name]) for sort in stage.sorts
        )

    try:
        await until(
            begun, seconds=START_SECONDS, what="all jobs to train, and the undisturbed ones to end"
        )
    except Waited:
        await asyncio.to_thread(report, namespace)
        raise
    stage.say("all jobs train")


async def _delete_jobs(stage: Stage) -> list[str]:
    namespace, ask = stage.driver.namespace, stage.driver.api.ask
    await insist(partial(ask, "DELETE", jobs_path(namespace)))
    selector, left = f"labelSelector={names.LABEL_JOB_NAME}", ["?"]
    until = time.monotonic() + GONE_SECONDS
    while left and time.monotonic() < until:
        await asyncio.sleep(LOOK_SECONDS)
        left = []
        for kind in ("pods", "services"):
            path = f"/api/v1/namespaces/{namespace}/{kind}?{selector}"
            found = await insist(partial(ask, "GET", path))
            left += [f"{kind}/{item['metadata']['name']}" for item in found["items"]]
    if left:
        stage.say(f"left: {', '.join(left)}")
    return left


def _seen(stage: Stage, hits: list[Hit], jobs: dict[str, JobView], left: list[str]) -> Seen:
    observer, sorts = stage.observer, stage.sorts
    lines = {sort.name: observer.lines[sort.name] for sort in sorts}
    alone = {
        job: read_records(job, observer.lines[sort.name]).done
        for job, sort in undisturbed(sorts).items()
    }
    return Seen(
        expected={sort.name: expected(sort, stage.seconds) for sort in sorts},
        hits=sorted(hits, key=lambda hit: hit.at),
        records={job: read_records(job, told) for job, told in lines.items()},
        undisturbed={job: done[-1].parameters for job, done in alone.items() if done},
        statuses=observer.statuses,
        ends=observer.ends,
        usages=observer.usages,
        jobs=jobs,
        left=left,
        violations=observer.violations,
        restarts=observer.restarts,
        killed=frozenset(observer.killed),
        stored=read_notes(stage.folder),
    )
