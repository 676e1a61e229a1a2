"""Torch's rendezvous, with the client that reports for it."""

import time
from collections.abc import Callable

from torch.distributed import HashStore  # type: ignore[attr-defined] # documented, and there
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousStoreInfo,
)

from elastic_pytorch.agent.settings import Settings
from elastic_pytorch.log import logger
from elastic_pytorch.operator_link.checkpoint_watch import CheckpointWatch
from elastic_pytorch.operator_link.client import OperatorClient
from elastic_pytorch.operator_link.http_connection import OperatorConnection
from elastic_pytorch.operator_link.rounds import Round
from elastic_pytorch.operator_link.store_port import StorePort
from elastic_pytorch.progress.receiver import ProgressReceiver
from elastic_pytorch.wakeup import Wakeup

BACKEND = "elastic-pytorch"
POLL_SECONDS = 0.5  # the longest wait without news


class OperatorRendezvous(RendezvousHandler):
    """Waits for a round that lists this pod.

    Torch's loop stops the workers and asks for the next rendezvous when `num_nodes_waiting` reports
    new members, but counts the restart of a FAILED group against a budget, which here is the
    operator's. So the agent reports a failed or superseded group as HEALTHY, with new members.

    `wait`, which is set by who makes it, gets a time in seconds, and raises what ends the
    rendezvous. `wakeup` rings for news, and for whatever else ends that wait.
    """

    wait: Callable[[float], None]

    def __init__(
        self, settings: Settings, progress: ProgressReceiver, local_world_size: int
    ) -> None:
        self.taken = Round(0)  # 0: none
        self.broken = False  # a worker of the round has failed
        self.restarts = False  # torch's loop is to ask for the next rendezvous
        self.progress = progress
        self.store_port = StorePort(settings.store_port)
        self.wakeup = Wakeup()
        self.client = OperatorClient(
            OperatorConnection(
                settings.operator_host,
                settings.operator_port,
                settings.token_file,
                settings.operator_authorities,
            ),
            local_world_size=local_world_size,
            port=lambda: self.store_port.number,
            progress=lambda: progress.current().to_json(time.monotonic()),
        )
        self.client.on_news = self.wakeup.ring
        progress.on_news = self.client.send_heartbeat
        if settings.checkpoint_path:
            CheckpointWatch(
                settings.checkpoint_path,
                lambda: self.client.running_round,
                progress.note_checkpoints,
            ).start()
        self._run_id = settings.run_id

    def newer_round_known(self) -> bool:
        return self.client.newest.number > self.taken.number

    def finds_group(self) -> bool:
        """Whether a newer round lists this pod; after a failure, waits for a newer round first."""
        while self.client.reported.state == "failed" and not self.newer_round_known():
            self.wait(POLL_SECONDS)
        return self.newer_round_known() and self.client.newest.rank is not None

    def newer_round_is_orderly(self) -> bool:
        """Whether all members of this agent's round are alive."""
        return self.client.newest.orderly_since <= self.taken.number

    def newer_round_keeps_all(self) -> bool:
        return self.client.newest.keeps_all_since <= self.taken.number

    def next_rendezvous(self) -> RendezvousInfo:
        since = time.monotonic()
        declared = self.client.newest
        while declared.rank is None or declared.number <= self.taken.number:
            self._say_waiting()
            self.wait(POLL_SECONDS)
            declared = self.client.newest
        rank, restarted = declared.rank, self.taken.number > 0
        self.taken, self.broken = declared, False
        if rank == 0:
            self.store_port.lend(declared.store_port)
        # Before the report: the steps of the last round do not belong to this one.
        self.progress.start_round()
        self.client.report(
            state="running",
            round=declared.number,
            rank=rank,
            world_size=declared.size,
            restarts=self.client.reported.restarts + restarted,
            failure=None,
            places=None,
        )
        logger.info(
            "round %d: rank %d of %d, store %s:%d, waited %.3f s; %s",
            declared.number,
            rank,
            declared.size,
            declared.store_address,
            declared.store_port,
            time.monotonic() - since,
            declared.cause,
        )
        store = RendezvousStoreInfo(declared.store_address, declared.store_port)
        return RendezvousInfo(self.make_store(declared.size), rank, declared.size, store)

    def make_store(self, size: int) -> HashStore:
        """Returns a store that torch requires, but that nothing uses."""
        del size
        return HashStore()

    def num_nodes_waiting(self) -> int:
        return int(self.restarts)

    def get_backend(self) -> str:
        return BACKEND

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """Does nothing: only the operator ends a job."""

    def get_run_id(self) -> str:
        return self._run_id

    def shutdown(self) -> bool:
        """Does nothing: the end of an agent is not the end of the job."""
        return True

    def _say_waiting(self) -> None:
        state = self.client.reported.state
        # A failure is reported until a newer round leaves this pod out, in case the operator has
        # not received it.
        if state != "ready" and (self.newer_round_known() or state != "failed"):
            self.client.report(state="ready", failure=None)
            logger.info(
                "ready, waiting for a round that lists this pod; the newest is %d",
                self.client.newest.number,
            )
