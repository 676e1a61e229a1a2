from pathlib import Path

import pytest
import yaml

from tests.local.local_jobs import run_local
from tests.operator.builders import a_manifest

pytestmark = [pytest.mark.process, pytest.mark.long]

SCRIPT = """\
import os
import sys
from pathlib import Path
import torch.distributed as dist

dist.init_process_group("gloo")
folder = Path(sys.argv[1])
(folder / f"rank-{dist.get_rank()}").touch()
dist.barrier()
print("found", *sorted(path.name for path in folder.iterdir()), "and", sys.argv[2], flush=True)
"""


def test_workers_share_a_claim_and_the_next_run_finds_it(tmp_path: Path) -> None:
    folder = tmp_path / "examples" / "volumes"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(SCRIPT)
    container = {
        "name": "pytorch",
        "image": "torch",
        "args": ["/examples/volumes/train.py", "/data", "/dev/shm/batches"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    manifest = a_manifest(
        replicas=2,
        minimum=2,
        maximum=2,
        sharedMemorySize="64Mi",
        sharedVolumeClaims=[{"metadata": {"name": "data"}, "spec": {}}],
        template={"spec": {"containers": [container]}},
    )
    (folder / "job.yaml").write_text(yaml.safe_dump(manifest))
    for _ in range(2):
        done = run_local(tmp_path, folder / "job.yaml", "--workdir", "work")
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        assert done.stdout.count("found rank-0 rank-1 and /dev/shm/batches") == 2
        (tmp_path / "work" / "volumes" / "shared" / "data" / "rank-1").unlink()
