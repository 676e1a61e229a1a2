"""The trials that were made, and the file that keeps them. Pure, but for that."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kubeflow.pauses import Figures


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial.

    Attributes:
        job: a name of JOBS.
        kind: a name of KINDS.
        when: in UTC.
        pod: that was lost; empty: none was.
        figures: None: it failed.
        error: why; empty: it did not.
    """

    job: str
    kind: str
    when: str
    pod: str
    figures: Figures | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the benchmark.

    Attributes:
        about: what was measured with what: texts by their names.
        trials: in the order in which they were made.
        left_out: why trials are missing; empty: none are.
    """

    about: Mapping[str, str]
    trials: Sequence[Trial]
    left_out: str = ""


def write(file: Path, run: Run) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(asdict(run), indent=1) + "\n")


def read(file: Path) -> Run:
    found: dict[str, Any] = json.loads(file.read_text())
    trials = [
        Trial(**entry | {"figures": Figures(**entry["figures"]) if entry["figures"] else None}) for entry in found["trials"]
    ]
    return Run(found["about"], trials, found["left_out"])
