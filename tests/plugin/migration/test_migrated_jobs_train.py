"""Old jobs, migrated, run to their end in local mode with the same processes and ranks."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from elastic_pytorch_client.migration.documents import Migrated, migrate_documents, migrate_script
from elastic_pytorch_client.yaml_text import read_documents, write_documents

from tests.old_jobs import OLD_JOBS, OldJob
from tests.paths import ROOT

pytestmark = [pytest.mark.process, pytest.mark.long]

SCRIPT = """
import argparse, os
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--rank", type=int, default=int(os.environ["RANK"]))
parser.add_argument("--world", type=int, default=int(os.environ["WORLD_SIZE"]))
parser.add_argument("--local-rank", type=int, default=int(os.environ["LOCAL_RANK"]))
parser.add_argument("--lr", type=float)
options = parser.parse_args()
dist.init_process_group("gloo", rank=options.rank, world_size=options.world)
total = torch.ones(1)
dist.all_reduce(total)
ranks = f"rank {options.rank} of {int(total)}, local rank {options.local_rank}"
print(f"{ranks}, lr {options.lr}", flush=True)
dist.destroy_process_group()
"""

PYTORCHJOB = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: old
spec:
  nprocPerNode: "{processes}"
  {policy}
  pytorchReplicaSpecs:
    {replicas}
"""
REPLICA = """{role}:
      replicas: 1
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: pytorch
              image: my-image
              command: {command}
    """
WAYS = {
    "python": "[python, SCRIPT, --lr, '1e-4']",
    "launch": "[python, -m, torch.distributed.launch, --nproc_per_node=1, SCRIPT, --lr=1e-4]",
    "kept-shell": "[bash, -c, 'true && torchrun --nnodes=2 --node_rank=$RANK --master_port=1 "
    "SCRIPT "
    "--lr "
    "1e-4']",
    "shell-with-ranks": "[sh, -c, 'python SCRIPT --rank $RANK --world $WORLD_SIZE --lr 1e-4']",
}


BATCH_SCRIPT = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
export LR=1e-4
srun torchrun --nnodes=$SLURM_NNODES --rdzv-endpoint=$MASTER_ADDR:29500 SCRIPT \\
    --lr $LR
"""


def ranks_of(old: str, folder: Path) -> set[str]:
    """What the processes of a migrated job print."""
    script = folder / "train.py"
    script.write_text(SCRIPT)
    old = old.replace("SCRIPT", str(script))
    migrated: Migrated
    [migrated] = (
        [migrate_script(old, "old.sbatch")]
        if old.startswith("#!")
        else migrate_documents(read_documents(old))
    )
    assert migrated.failed is None, migrated.failed
    return set(
        re.findall(
            r"rank \d of \d, local rank \d, lr [\d.e-]+",
            trained(write_documents(migrated.documents), folder),
        )
    )


def trained(job: str, folder: Path) -> str:
    """What the workers of a job print until it is complete."""
    (folder / "job.yaml").write_text(job)
    return run_module(folder, "elastic_pytorch_local", "job.yaml", "--workdir", ".")


def run_module(folder: Path, *words: str) -> str:
    """What a module prints in a folder, where containers without a `workingDir` run."""
    command = [sys.executable, "-m", *words]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("command", WAYS.values(), ids=WAYS)
def test_a_master_and_a_worker_train_as_two_workers(command: str, tmp_path: Path) -> None:
    replicas = "".join(REPLICA.format(role=role, command=command) for role in ("Master", "Worker"))
    old = PYTORCHJOB.format(processes=1, policy="runPolicy: {}", replicas=replicas)
    assert ranks_of(old, tmp_path) == {
        f"rank {rank} of 2, local rank 0, lr 0.0001" for rank in (0, 1)
    }


def test_an_elastic_job_with_two_processes_in_its_pod(tmp_path: Path) -> None:
    replicas = REPLICA.format(role="Worker", command="[torchrun, SCRIPT]")
    policy = "elasticPolicy: {minReplicas: 1, maxReplicas: 2, rdzvBackend: c10d}"
    old = PYTORCHJOB.format(processes=2, policy=policy, replicas=replicas)
    assert len(ranks_of(old.replace("SCRIPT]", "SCRIPT, --lr=1e-4]"), tmp_path)) == 2


def test_a_batch_script_trains_as_two_workers(tmp_path: Path) -> None:
    assert ranks_of(BATCH_SCRIPT, tmp_path) == {
        f"rank {rank} of 2, local rank 0, lr 0.0001" for rank in (0, 1)
    }


@pytest.mark.parametrize("old", OLD_JOBS, ids=lambda old: old.path.stem)
def test_an_old_job_of_the_cluster_trains_here(old: OldJob, tmp_path: Path) -> None:
    """Each job of tests/e2e/api/test_migrated_jobs.py, with the script of this checkout."""
    copy = tmp_path / old.path.name
    copy.write_text(old.path.read_text().replace("/examples/", f"{ROOT}/examples/"))
    new = run_module(tmp_path, "elastic_pytorch_client", "migrate", *old.options(copy))
    old.assert_trained(trained(new, tmp_path))
