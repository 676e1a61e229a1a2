"""A step of a pipeline: creates a job, shows how it goes, and ends as the job does.

    python examples/python-client/train_and_wait.py examples/char-lm/job.yaml --workers 4

Exit code 0: it is complete. 1: it has failed; its root cause and its worker's last lines are on
stderr.
"""

import argparse
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from elastic_pytorch_client import Cluster, EpjError, Job, JobView


def show(status: JobView) -> None:
    progress = status.progress
    loss = "" if progress.loss is None else f"  loss {progress.loss:.3f}"
    step = "" if progress.step is None else f"  step {progress.step}/{progress.total or '?'}"
    print(f"{status.state:<10} {status.world} processes{step}{loss}", flush=True)


def main(words: Sequence[str] | None = None, cluster: Cluster | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("manifest", type=Path)
    add("--namespace")
    add("--workers", type=int, help="other than the manifest says")
    options = parser.parse_args(words)
    job = None
    try:
        job = Job.create(options.manifest, namespace=options.namespace, cluster=cluster)
        if options.workers is not None:
            job.scale(options.workers)
        shown = None
        for status in job.progress():
            news = (status.state, status.world, (status.progress.step or 0) // 50)
            if news != shown:
                show(status)
                shown = news
        job.wait(timeout_seconds=5)
    except EpjError as error:
        print(f"{options.manifest}: {error}", file=sys.stderr)
        if job is not None and job.status.root_cause is not None:
            for line in islice(job.logs(tail_lines=20), 100):
                print(f"  {line.worker.name}: {line.text}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
