"""Does the faults to a job, one after the other, and waits each time until it trains again. It undoes what it changes."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from elastic_pytorch_client.cluster import Cluster, Object, training_container
from elastic_pytorch_client.drill.faults import Fault, PlannedFault, plan_faults
from elastic_pytorch_client.drill.outcome import Outcome, SeenInterruption
from elastic_pytorch_client.drill.permissions import check
from elastic_pytorch_client.errors import EpjError, JobFailed, TimedOut
from elastic_pytorch_client.reading.job_view import JobView, view_job
from elastic_pytorch_client.reading.pods.start import view_start
from elastic_pytorch_client.training_processes import container_command
from elastic_pytorch_client.watch import Clock, follow_job

# Longer than the operator's CRASH_LOOP_SECONDS: a fault must not look like the failure of a round that has just begun.
SETTLE_SECONDS = 6.0
DEFAULT_GRACE_SECONDS = 30.0  # Kubernetes' own


@dataclass
class Exercise:
    """A drill of one job.

    Attributes:
        cluster: where it runs.
        namespace: of the job.
        name: of the job.
        timeout_seconds: how long to wait after each fault.
        say: told what is done, and what has happened.
        clock: the time.
        shield: what keeps an undo from being interrupted.
    """

    cluster: Cluster
    namespace: str
    name: str
    timeout_seconds: float
    say: Callable[[str], None]
    clock: Clock
    shield: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext

    def run(self, planned: Sequence[PlannedFault]) -> Iterator[Outcome]:
        """Does each fault that is not left out, and yields its outcome; ends after the first that the job does not recover from.

        Each fault after the first is planned again before it is done: the pods are others by then.

        Whatever ends it, a KeyboardInterrupt too, what it has changed is undone before.
        """
        todo = [fault for fault in planned if not fault.skipped]
        for number, fault in enumerate(todo):
            outcome = Outcome(fault)
            try:
                if number:
                    self._settle()
                    outcome.planned = self._plan_again(fault.fault)
                if not outcome.planned.skipped:
                    self._carry_out(outcome)
            except EpjError as error:
                outcome.error = str(error)
            outcome.grace_seconds = self._grace_seconds()
            yield outcome
            if outcome.error:
                return

    def _carry_out(self, outcome: Outcome) -> None:
        fault, before = outcome.planned, self._job()
        known = {str(pod["metadata"]["uid"]) for pod in self._pods()}
        self.say(fault.does)
        began = self.clock.monotonic()
        with contextlib.ExitStack() as undo:
            match fault.fault:
                case Fault.PROCESS:
                    target = fault.targets[-1]
                    self.cluster.run_in_pod(self.namespace, target.pod, target.container, container_command("kill"))
                case Fault.POD:
                    for target in fault.targets:
                        self.cluster.delete_pod(self.namespace, target.pod, target.uid)
                case Fault.NODE:
                    with contextlib.ExitStack() as cordon:
                        cordon.callback(self._undo, f"kubectl uncordon {fault.node}", lambda: self._uncordon(fault.node))
                        self.cluster.cordon_node(fault.node, cordoned=True)
                        for target in fault.targets:
                            self.cluster.evict_pod(self.namespace, target.pod, target.uid)
                        evicted = {target.pod for target in fault.targets}
                        self._wait(outcome, before, began, lambda job: not evicted & {worker.name for worker in job.members})
                case Fault.SCALE:
                    by_hand = f"kubectl epj resize -n {self.namespace} {self.name} {before.wanted}"
                    undo.callback(self._undo, by_hand, lambda: self._scale_back(fault.replicas, before.wanted))
                    self.cluster.scale_job(self.namespace, self.name, fault.replicas)
                    self._wait(outcome, before, began, lambda job: job.at_wanted_size and job.wanted == fault.replicas)
                    middle = self._job()
                    self._scale_back(fault.replicas, before.wanted)
                    began = self.clock.monotonic()
                    self._wait(outcome, middle, began, lambda job: job.at_wanted_size and job.wanted == before.wanted)
            if fault.fault is not Fault.SCALE:
                self._wait(outcome, before, began, lambda job: job.at_wanted_size)
            outcome.whole_seconds = self.clock.monotonic() - began
        outcome.starts = [
            view_start(pod, training_container(pod)) for pod in self._pods() if str(pod["metadata"]["uid"]) not in known
        ]

    def _wait(self, outcome: Outcome, before: JobView, began: float, fulfilled: Callable[[JobView], bool]) -> None:
        """Waits until a group that formed later than the one before trains and fulfils something; notes its interruptions.

        Raises:
            JobFailed: the job has ended instead, or was deleted.
            TimedOut: it took too long.
        """
        size = outcome.interruptions[-1].workers if outcome.interruptions else before.size
        job = before
        for job in follow_job(self.cluster, self.namespace, self.name, timeout_seconds=self.timeout_seconds, clock=self.clock):
            noted = {seen.interruption.round for seen in outcome.interruptions}
            for interruption in job.recent_interruptions:
                if interruption.round > before.round and interruption.round not in noted:
                    seen = SeenInterruption(interruption, self.clock.monotonic() - began, size, job.size)
                    outcome.interruptions.append(seen)
                    self.say(f"trains again with {seen.workers} workers, {seen.after_seconds:.1f} s after")
                    size = seen.workers
            trains = job.last_interruption is not None and job.last_interruption.round == job.round > before.round
            if trains and job.seen and fulfilled(job):
                return
            if job.ended:
                raise JobFailed(f"{self.name} has ended ({job.state}) instead of training again")
            if job.suspended:
                raise JobFailed(f"{self.name} has been suspended meanwhile")
        what = f"{self.name} did not train again within {self.timeout_seconds:.0f} s"
        raise TimedOut(f"{what}; `kubectl epj why {self.name}` says why")

    def _settle(self) -> None:
        """Lets the job train for a while.

        Raises:
            JobFailed: it does not train any more.
        """
        self.clock.sleep(SETTLE_SECONDS)
        job = self._job()
        if not (job.holds("Running") and job.at_wanted_size):
            raise JobFailed(f"{self.name} does not train with all its workers any more, without a fault of this drill")

    def _plan_again(self, fault: Fault) -> PlannedFault:
        manifest = self.cluster.get_job(self.namespace, self.name)
        planned = plan_faults(manifest, self._pods(), [fault])
        return check(self.cluster, self.namespace, self.name, planned)[0]

    def _scale_back(self, ours: int, replicas: int) -> None:
        """Sets the size there was, unless another one than the drill's was set meanwhile."""
        if self._job().wanted == ours:
            self.say(f"scale back to {replicas} workers")
            self.cluster.scale_job(self.namespace, self.name, replicas)

    def _uncordon(self, node: str) -> None:
        self.say(f"uncordon node {node}")
        self.cluster.cordon_node(node, cordoned=False)

    def _undo(self, by_hand: str, undo: Callable[[], None]) -> None:
        """Undoes something. An error is told with the command that does it by hand: the fault's own error matters more."""
        try:
            with self.shield():
                undo()
        except EpjError as error:
            self.say(f"could not undo it: {error}. Do it by hand: {by_hand}")

    def _grace_seconds(self) -> float:
        try:
            pods = self._pods()
        except EpjError:
            return DEFAULT_GRACE_SECONDS
        seconds = [pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS) for pod in pods]
        return float(max(seconds, default=DEFAULT_GRACE_SECONDS))

    def _job(self) -> JobView:
        return view_job(self.cluster.get_job(self.namespace, self.name))

    def _pods(self) -> list[Object]:
        return self.cluster.list_pods(self.namespace, self.name)
