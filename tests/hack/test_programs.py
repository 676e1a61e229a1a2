"""Programs of maintainers start, read their options and refuse others."""

import runpy
import sys
from collections.abc import Callable

import pytest

from tests.paths import ROOT

pytestmark = [pytest.mark.process, pytest.mark.torch]  # some import the agents of the tests

Run = Callable[[str], tuple[object, str]]
REFUSED = {
    "bench --only earthquake": "no such kind: earthquake; there are kill-process",
    "demo --example none": "invalid choice: 'none'",
    "gpu --only luck": "no such measurement: luck",
    "kubeflow --only luck": "no such kind: luck; there are worker-force",
    "kubeflow --replay --only grow": "a replay has losses only",
    "outages --draws many": "invalid int value: 'many'",
    "scale --jobs many": "invalid int value: 'many'",
    "soak --faults luck": "no such name: luck; there are kill-process",
    "hack/matrix --processes 2": "unrecognized arguments: --processes",
    "hack/reference --none": "unrecognized arguments: --none",
    "hack/krew/release.py": "required: --uri, --homepage",
    "hack/images/load_image.py image": "required: nodes",
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a module, or a path, with Python; returns its end and what it has printed."""

    def run(command: str) -> tuple[object, str]:
        name, *arguments = command.split()
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        with pytest.raises(SystemExit) as ended:
            if "/" in name:
                runpy.run_path(str(ROOT / name), run_name="__main__")
            else:
                runpy.run_module(name, run_name="__main__")
        return ended.value.code, "".join(capsys.readouterr())

    return run


@pytest.mark.filterwarnings("ignore:.*found in sys.modules")  # other tests have imported it
def test_each_program_starts_and_refuses_what_it_does_not_know(run: Run) -> None:
    ended = {command: run(command) for command in REFUSED}
    assert not {
        command: end
        for command, end in ended.items()
        if end[0] != 2 or REFUSED[command] not in end[1]
    }


@pytest.mark.filterwarnings("ignore:.*found in sys.modules")
def test_soak_prints_its_plan(run: Run) -> None:
    code, text = run("soak --dry-run --seed 7 --minutes 1")
    first, *acts = text.splitlines()
    assert (code, first) == (0, f"Seed 7, 1 minutes, {len(acts)} acts")
    assert [int(act.split()[0]) for act in acts] == list(range(1, len(acts) + 1))
