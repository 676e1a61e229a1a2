"""Jobs of other kinds that train once they are migrated: tests/manifests/old.

Their script is /examples/torchrun/train.py, for two epochs, and they need no volume: checkpoints go
to the working folder.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.paths import ROOT

TRAINS = re.compile(r"^# trains: (\d) pods?, (\d) process(?:es)? each$", re.MULTILINE)
RANK = re.compile(r"rank (\d) of (\d), local rank (\d)")


@dataclass(frozen=True, slots=True)
class OldJob:
    """A manifest of another kind, or a batch script.

    Attributes:
        path: the file; the job that it becomes has its name.
        pods: how many pods train.
        processes: how many processes train in each pod.
    """

    path: Path
    pods: int
    processes: int

    def options(self, path: Path | None = None) -> list[str]:
        """What `kubectl epj migrate` is given for the file, or for a copy of it."""
        return [
            "--slurm" if self.path.suffix == ".sbatch" else "--filename",
            str(path or self.path),
        ]

    def assert_trained(self, logs: str) -> None:
        """The processes' own words: each rank of the group once, and the last epoch of rank 0."""
        world = self.pods * self.processes
        wanted = {(str(rank), str(world), str(rank % self.processes)) for rank in range(world)}
        assert set(RANK.findall(logs)) == wanted, logs[-4000:]
        assert f"epoch 2 of 2, workers {world}" in logs, logs[-4000:]


def read_old_job(path: Path) -> OldJob:
    """Reads from a file's first comment what trains."""
    found = TRAINS.search(path.read_text())
    assert found, path
    return OldJob(path, int(found[1]), int(found[2]))


OLD_JOBS = [read_old_job(path) for path in sorted((ROOT / "tests" / "manifests" / "old").iterdir())]
