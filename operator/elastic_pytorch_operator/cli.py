"""The command line of the operator: `run`."""

import argparse
import asyncio
import logging
import os
from collections.abc import Sequence
from functools import partial

from elastic_pytorch_operator import __version__
from elastic_pytorch_operator.api.names import OPERATOR
from elastic_pytorch_operator.leadership.lease import LeaseTiming
from elastic_pytorch_operator.manifests.agent_injection import AgentImage
from elastic_pytorch_operator.model.announced_ends import MARKS, Certainty, parse_marks
from elastic_pytorch_operator.reconcile.write_slots import (
    LEAST_MAX_WRITES,
    MAX_WRITES,
    MOST_MAX_WRITES,
)
from elastic_pytorch_operator.runtime.logs import configure_logging
from elastic_pytorch_operator.spec.platform.job_defaults import (
    API_DEFAULTS,
    CLEAN_POD_POLICIES,
    JobDefaults,
    parse_tolerations,
)

logger = logging.getLogger(__name__)

DEFAULT_PORT = 8443
DEFAULT_PROBE_PORT = 8781


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    configure_logging(options.log_level, options.log_format)
    try:
        options.timing = LeaseTiming(
            options.lease_duration, options.renew_deadline, options.retry_period
        )
        options.marks = (
            *MARKS,
            *parse_marks(options.sure_ends, Certainty.SURE),
            *parse_marks(options.soft_ends, Certainty.SOFT),
            *parse_marks(options.sure_faults, Certainty.SURE, fault=True),
            *parse_marks(options.soft_faults, Certainty.SOFT, fault=True),
        )
        if not LEAST_MAX_WRITES <= options.max_writes <= MOST_MAX_WRITES:
            raise ValueError(f"--max-writes must be from {LEAST_MAX_WRITES} to {MOST_MAX_WRITES}")
        if options.metrics_port and not (
            os.environ.get("POD_NAMESPACE") and options.url.startswith("https://")
        ):
            raise ValueError(
                "--metrics-port needs an https --url and POD_NAMESPACE: the certificate is in a "
                "Secret there"
            )
        tolerations = parse_tolerations(options.default_tolerations)
        options.defaults = JobDefaults(
            options.default_ttl, options.default_clean_pod_policy, tolerations
        )
    except ValueError as error:
        parser.error(str(error))
    asyncio.run(_run(options))
    return 0


async def _run(options: argparse.Namespace) -> None:
    # Half a second of imports.
    from elastic_pytorch_operator.leadership.leader_endpoint import Endpoint  # noqa: PLC0415
    from elastic_pytorch_operator.runtime.run import run_operator  # noqa: PLC0415
    from elastic_pytorch_operator.runtime.settings import ReplicaSettings  # noqa: PLC0415

    name = os.environ.get("AGENT_IMAGE", "")
    pull_policy = os.environ.get("AGENT_IMAGE_PULL_POLICY", "")
    agent_image = AgentImage(name, pull_policy, options.agent_image_pull_secrets) if name else None
    if agent_image is None:
        logger.warning(
            "AGENT_IMAGE is not set: no agent is injected, the images of all jobs must have one"
        )
    pod, namespace = os.environ.get("POD_NAME", ""), os.environ.get("POD_NAMESPACE", "")
    if not (pod and namespace):
        logger.warning(
            "POD_NAME and POD_NAMESPACE are not set: no leader is elected, there must be no other "
            "replica"
        )
    uid, address, node = (os.environ.get(name, "") for name in ("POD_UID", "POD_IP", "NODE_NAME"))
    if pod and namespace and not (uid and address):
        logger.warning(
            "POD_UID and POD_IP are not set: no Service is pointed at this replica when it leads"
        )
    settings = ReplicaSettings(
        operator_url=options.url or f"http://{os.uname().nodename}:{options.port}",
        host="::",  # neither a pod's address nor its family is known in advance
        port=options.port,
        probe_port=options.probe_port,
        namespace=namespace if pod else "",
        pod=pod,
        endpoint=Endpoint(pod, uid, address, options.port, node, options.name)
        if namespace and pod and uid and address
        else None,
        watched=options.namespaces,
        marks=options.marks,
        defaults=options.defaults,
        kueue=options.kueue,
        name=options.name,
        metrics_port=options.metrics_port,
        existing_secret=options.existing_secret,
        max_writes=options.max_writes,
        agent_image=agent_image,
        timing=options.timing,
        metrics_per_job=options.metrics_per_job,
    )
    await run_operator(settings)


def _split(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for word in map(str.strip, text.split(",")) if word))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="elastic_pytorch_operator", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run the operator, in a pod or with a kubeconfig")
    words = partial(run.add_argument, type=_split, default=())
    integer = partial(run.add_argument, type=int)
    run.add_argument(
        "--url", default="", help="where agents find this operator (default: this host's name)"
    )
    integer("--port", default=DEFAULT_PORT, help="where it listens (default: %(default)s)")
    words("--namespaces", help="whose jobs it reconciles, as a,b (default: all)")
    integer(
        "--probe-port",
        default=DEFAULT_PROBE_PORT,
        help="where it answers probes and scrapes (default: %(default)s)",
    )
    integer(
        "--metrics-port",
        default=0,
        help="where it answers scrapes over TLS, of clients whose token may get /metrics "
        "(default: the probe port, for all)",
    )
    run.add_argument(
        "--existing-secret",
        default="",
        help="of its namespace, with tls.crt, tls.key and ca.crt, which others keep "
        "(default: it makes its own certificate)",
    )
    run.add_argument(
        "--name",
        default=OPERATOR,
        help="of its Lease and of the agents' Service (default: %(default)s)",
    )
    integer(
        "--max-writes",
        default=MAX_WRITES,
        help="how many writes to the API server may be on their way at once (default: %(default)s)",
    )
    run.add_argument(
        "--metrics-per-job", action="store_true", help="give each job series of its own"
    )
    form = "further taints and labels, as key[=value][:effect],…"
    words("--sure-ends", help=f"{form}, by which a node announces that it ends in two minutes")
    words("--soft-ends", help=f"{form}, by which a node announces that it may end")
    form = "further taints, labels and conditions, as key[=value][:effect],…"
    words("--sure-faults", help=f"{form}, of nodes that workers are to leave")
    words("--soft-faults", help=f"{form}, of nodes that new pods are to avoid")
    run.add_argument(
        "--kueue", action="store_true", help="ask Kueue for the quota of jobs that name a queue"
    )
    integer(
        "--default-ttl", help="ttlSecondsAfterFinished of jobs that set none (default: they stay)"
    )
    run.add_argument(
        "--default-clean-pod-policy",
        choices=CLEAN_POD_POLICIES,
        default=API_DEFAULTS.clean_pod_policy,
        help="cleanPodPolicy of jobs that set none (default: %(default)s)",
    )
    run.add_argument(
        "--default-tolerations",
        default="[]",
        help="tolerations that all worker pods get, a JSON list",
    )
    words(
        "--agent-image-pull-secrets",
        help="Secrets of the jobs' namespaces for the agent's image, as a,b",
    )
    timing = LeaseTiming()
    integer(
        "--lease-duration",
        default=timing.lease_seconds,
        help="seconds after which another replica leads if the leader has not renewed its Lease "
        "(default: %(default)s)",
    )
    run.add_argument(
        "--renew-deadline",
        type=float,
        default=timing.renew_deadline_seconds,
        help="seconds after which a leader stops that cannot renew it (default: %(default)g)",
    )
    run.add_argument(
        "--retry-period",
        type=float,
        default=timing.retry_period_seconds,
        help="seconds between two renewals (default: %(default)g)",
    )
    run.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    run.add_argument("--log-format", default="json", choices=["json", "text"])
    return parser
