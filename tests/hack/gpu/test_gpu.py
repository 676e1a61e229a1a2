"""What measures changes of a group on a GPU: times, pauses, table, and the pack to send."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu import __main__ as program
from gpu.__main__ import RUN_SECONDS, allot, measured
from gpu.measurements import FIT, MEASUREMENTS, Measurement
from gpu.pack import pack
from gpu.pauses import Pause, pause_of
from gpu.table import Row, failed, lay_out
from gpu.trainings import Options

pytestmark = [pytest.mark.process, pytest.mark.torch]


def test_measurements_have_shares_of_eight_minutes_and_one_without_time_has_a_row() -> None:
    assert [allot(60, left) for left in (400, 45, 20, 19, -3)] == [60, 40, 15, 0, 0]
    assert sum(MEASUREMENTS[name].seconds for name in FIT) <= RUN_SECONDS
    [row] = measured("prepared-1B", "cuda", 10.0)
    assert (row.what, row.parameters, row.how) == ("growth and losses", "1B", "in_process, prepare")
    assert row.remark == "FAILED: no time was left for it"


def test_measurement_that_takes_too_long_ends_and_keeps_its_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grown = Row("grown", "tiny", "plain")

    def rows(options: Options, folder: Path) -> Iterator[Row]:
        assert (options.parameters, folder.is_dir()) == ("tiny", True)
        yield grown
        time.sleep(60)

    monkeypatch.setattr(program, "LEAST_SECONDS", 0.01)
    monkeypatch.setitem(MEASUREMENTS, "plain", Measurement("plain", False, 0.2, rows))
    kept, late = measured("plain", "cpu", 100.0)
    assert (kept, late.remark) == (grown, "FAILED: TimeoutError: it took longer than 0 s")


def test_pause_is_from_the_last_step_of_a_group_to_the_first_of_the_one_of_another_size() -> None:
    def steps(*told: tuple[float, int, str, int]) -> list[dict[str, object]]:
        return [
            {"at": at, "step": step, "group": group, "world": world, "pid": group[0]}
            for at, step, group, world in told
        ]

    old = ((1.0, 1, "7-1", 2), (2.0, 2, "7-1", 2), (3.0, 3, "7-1", 2))
    kept, other = Pause(0.5, 0, True, 1.0), Pause(5.0, 2, False, 1.0)
    assert pause_of(steps(*old, (3.5, 4, "7-2", 3)), "7-1", 3) == kept
    # It had begun step 3, and not ended it.
    assert pause_of(steps(*old, (3.5, 3, "7-2", 3)), "7-1", 3) == kept
    assert pause_of(steps(*old, (8.0, 1, "8-1", 2)), "7-1", 2) == other
    between = (4.0, 4, "7-2", 2)
    assert pause_of(steps(*old, between, (6.0, 5, "7-3", 3)), "7-1", 3) == Pause(3.0, 0, True, 1.0)
    assert pause_of(steps(*old, between), "7-1", 3) is None is pause_of(steps(*old), "7-1", 2)


def test_table_is_laid_out() -> None:
    grown = Row("grown", "120M", "in_process", "0.23", "0.11", "0", "kept", "from 2 pods to 3")
    lines = lay_out(
        [grown, failed("lost", "1B", "plain", "RuntimeError: a|b\n  and more")]
    ).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[2].startswith("| grown        | 120M  | in_process | 0.23 ")
    assert "FAILED: RuntimeError: a/b and more" in lines[3]
    titles = [(m.how, m.large) for m in MEASUREMENTS.values()]
    assert len(set(titles)) == len(titles)


def test_pack_has_all_that_python_lacks_and_runs_without_the_checkout(tmp_path: Path) -> None:
    pack(tmp_path)
    # -S: without the packages that are installed here, torch among them.
    command = [sys.executable, "-S", "-m", "gpu", "--help"]
    ran = subprocess.run(
        command, env={}, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert "prepared-1B" in ran.stdout, ran.stderr
