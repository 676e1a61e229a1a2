"""Builds an agent, runs it, and turns its end into an exit code. Imports torch."""

import dataclasses
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing import api as multiprocessing_api
from torch.distributed.elastic.rendezvous import RendezvousGracefulExitError
from torch.distributed.run import config_from_args, determine_local_world_size

from elastic_pytorch.agent.elastic_agent import ElasticAgent
from elastic_pytorch.agent.handover import Handover
from elastic_pytorch.agent.options import parse_options, worker_arguments
from elastic_pytorch.agent.preparation import PreparationError
from elastic_pytorch.agent.rendezvous import OperatorRendezvous
from elastic_pytorch.agent.settings import Settings, SettingsError, read_timeouts
from elastic_pytorch.agent.signals import HANDLED, Signals, wait_for_disk
from elastic_pytorch.agent.start_faults import check_log_folder, end_of_no_more_use
from elastic_pytorch.failures.failure import write_termination_message
from elastic_pytorch.failures.oom_kills import tell_group_kill
from elastic_pytorch.log import logger
from elastic_pytorch.operator_link.client import OperatorClient
from elastic_pytorch.operator_link.stream_link import start_link
from elastic_pytorch.pod.server import PodServer
from elastic_pytorch.processes import warm_start
from elastic_pytorch.processes.orphans import reap_orphans
from elastic_pytorch.processes.run_script import run_script
from elastic_pytorch.processes.stderr_tail import StderrTails
from elastic_pytorch.processes.worker_logs import WorkerLogs
from elastic_pytorch.processes.worker_processes import UnkillableError
from elastic_pytorch.progress.receiver import ProgressReceiver
from elastic_pytorch.torch_fixes import destroy_deadlock, store_connect

BOUNDARY_SHARE = 0.5  # of the time to stop, for a step boundary; SIGTERM's handler has the rest
FLUSH_SECONDS = 0.5  # for the last heartbeat


def launch(
    argv: Sequence[str],
    settings: Settings,
    progress: ProgressReceiver,
    pod_server: PodServer,
    began: float,
) -> int:
    """Returns the exit code, or raises SettingsError or CannotStartError."""
    options, config, command, command_arguments = _prepare(argv, settings)
    pod_server.start()  # after the fork of the forkserver, which must not inherit its sockets
    logger.info("warm after %.2f s", time.monotonic() - began)
    tell_group_kill()

    tails = StderrTails()
    rendezvous = OperatorRendezvous(settings, progress, config.nproc_per_node)
    client, wakeup = rendezvous.client, rendezvous.wakeup

    def leave() -> None:
        client.leave()
        wakeup.ring()

    signals = Signals(options.signals_to_handle or HANDLED, leave)
    # Torch installs this handler each time before it starts workers.
    vars(multiprocessing_api)["_terminate_process_handler"] = signals.note

    def wait_for_round(seconds: float) -> None:
        if client.verdict is not None:
            raise RendezvousGracefulExitError(f"the job is {client.verdict}")
        if signals.received is not None:
            raise SignalException(f"got {signals.received.name}", signals.received)
        agent.check_preparation()
        reap_orphans(set())
        wakeup.wait(seconds)

    rendezvous.wait = wait_for_round
    timeouts = read_timeouts(settings, options, config.monitor_interval)
    spec = WorkerSpec(
        role=config.role,
        local_world_size=config.nproc_per_node,
        rdzv_handler=rendezvous,
        entrypoint=run_script if options.warm else command,
        args=worker_arguments(options) if options.warm else tuple(command_arguments),
        max_restarts=config.max_restarts,
        # torch's sleep: the agent waits in _monitor_workers, where news ends the wait
        monitor_interval=0.001,
        **_newer_settings(config),
    )
    agent = ElasticAgent(
        spec,
        WorkerLogs(
            config.logs_specs or DefaultLogsSpecs(),
            tails,
            warm=options.warm,
            unit_replicas=settings.unit_replicas,
        ),
        handover=Handover(
            pod_server, wakeup.ring, BOUNDARY_SHARE * timeouts.stop_seconds, settings.rest_seconds
        ),
        rendezvous=rendezvous,
        signals=signals,
        timeouts=timeouts,
        prefix_template=config.log_line_prefix_template,
    )
    client.on_dump, client.keeps_processes = agent.ask_for_stacks, agent.keeps_processes
    signals.install()
    if timeouts.prepare_seconds is not None:
        client.report(state="preparing")  # before the first heartbeat
    start_link(client)
    try:
        exit_code = _run(agent, client)
    finally:
        if (
            wait_for_disk(pod_server, signals, settings.grace_seconds)
            and signals.received is not None
        ):
            client.report()  # which checkpoint is the last one
            client.flush(FLUSH_SECONDS)
        client.stopped = True
        rendezvous.store_port.close()
        tails.close()
    if exit_code is None:
        logger.info("end: the job is %s", client.verdict)
        exit_code = 0 if client.verdict == "complete" else 1
    if exit_code == 1 and agent.failure is not None:
        write_termination_message(agent.failure.message, agent.failure.traceback)
    return exit_code


def _run(agent: ElasticAgent, client: OperatorClient) -> int | None:
    """Returns the exit code; None: the operator's verdict decides."""
    try:
        agent.run()
    except SignalException as error:
        client.flush(FLUSH_SECONDS)
        logger.info("end: left because of %s", error.sigval.name)
        return 128 + error.sigval
    except PreparationError as error:
        client.flush(FLUSH_SECONDS)
        logger.error("end: failed before its workers had a group: %s", error)
        return 1
    except UnkillableError as error:
        # At once, as if the node had died: an orderly end would wait for the process. The operator
        # replaces a silent pod on another node.
        reason = "it hangs in the kernel, most likely in a driver, and its pod is of no more use"
        os._exit(end_of_no_more_use(f"{error}: {reason}"))
    return None


def _prepare(argv: Sequence[str], settings: Settings) -> tuple[Any, Any, Any, Any]:
    options = parse_options(argv)
    check_log_folder(options.log_dir)
    if options.warm:
        warm_start.import_modules(
            (*warm_start.MODULES, *warm_start.FIRST_STEP_MODULES, *settings.preload)
        )
        store_connect.install()
        destroy_deadlock.install()
        warm_start.report_formed_groups()
        sys.stdout.flush()
        sys.stderr.flush()
        warm_start.start_forkserver()
    try:
        # Only after the fork: this may initialise CUDA, which does not survive a fork.
        options.nproc_per_node = str(_count_processes(options.nproc_per_node))
        return options, *config_from_args(options)
    except (ValueError, OSError) as error:
        raise SettingsError(str(error)) from error


def _count_processes(wanted: str) -> int:
    try:
        return int(determine_local_world_size(wanted))
    except ValueError as error:
        if wanted not in ("gpu", "xpu"):
            raise
        raise ValueError(
            f"spec.nprocPerNode is {wanted}, and the container has no such device: {error} "
            "Request one in resources.limits, or set a number of processes"
        ) from error


def _newer_settings(config: Any) -> dict[str, Any]:
    """The options that LaunchConfig and WorkerSpec share, but only in newer releases of torch."""
    names = {field.name for field in dataclasses.fields(WorkerSpec)} & {
        field.name for field in dataclasses.fields(config)
    }
    return {
        name: getattr(config, name) for name in names - {"role", "max_restarts", "monitor_interval"}
    }
