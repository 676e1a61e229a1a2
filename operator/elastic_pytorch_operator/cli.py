"""The command line: `run` is the operator, `local` runs one job on this machine without a cluster."""

import argparse
import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from elastic_pytorch_operator import __version__
from elastic_pytorch_operator.logs import configure_logging

DEFAULT_PORT = 8780


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the process's exit code."""
    options = _parser().parse_args(arguments)
    configure_logging(options.log_level, options.log_format)
    if options.command == "local":
        from elastic_pytorch_operator.local import run_local  # noqa: PLC0415  the two modes need different libraries

        return asyncio.run(run_local(options.job.resolve(), options.workdir))
    return asyncio.run(_run(options.url, options.port))


async def _run(url: str, port: int) -> int:
    from elastic_pytorch_operator.kubernetes_cluster import KubernetesCluster  # noqa: PLC0415  half a second of imports
    from elastic_pytorch_operator.server import run_operator  # noqa: PLC0415

    cluster = await KubernetesCluster.connect()
    try:
        await run_operator(cluster, url or f"http://{os.uname().nodename}:{port}", port)
    finally:
        await cluster.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="elastic_pytorch_operator", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run the operator, in a pod or with a kubeconfig")
    run.add_argument("--url", default="", help="where agents find this operator (default: this host's name)")
    run.add_argument("--port", type=int, default=DEFAULT_PORT, help="where it listens (default: %(default)s)")
    local = commands.add_parser("local", help="run a job on this machine: the same planner and agents, no cluster")
    local.add_argument("job", type=Path, help="the job's manifest")
    local.add_argument("--workdir", type=Path, default=None, help="where volumes and logs go (default: a temporary folder)")
    for command, form in ((run, "json"), (local, "text")):
        command.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
        command.add_argument("--log-format", default=form, choices=["json", "text"])
    return parser
