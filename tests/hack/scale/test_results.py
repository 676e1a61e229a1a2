from pathlib import Path

import pytest
from scale import results
from scale.__main__ import KEPT, PAGE, parse_options
from scale.results import Phase, Result

QUIET = Phase(60.0, {"operator": 0.31, "etcd": 0.2}, leader_cores=0.3, leader_mib=210.0, operator_requests={"POST": 3.5})


def a_result(jobs: int = 100, workers: int = 10) -> Result:
    times = {"created": 6.25, "created_per_second": 160.0}
    return Result(
        jobs,
        workers,
        "2026-11-22T12:00:00Z",
        {
            "resources": {"limits": {"memory": "512Mi"}},
            "leases": ["--lease-duration=4", "--renew-deadline=3", "--retry-period=1"],
        },
        times,
        {"loss": (0.1, 0.25, 0.3)},
        {"quiet": QUIET},
    )


def test_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = results.write(tmp_path, a_result())
    assert path.name == "100x10.json"
    read = results.read(path.read_text())
    assert (read.phases, tuple(read.spreads["loss"] or ())) == ({"quiet": QUIET}, (0.1, 0.25, 0.3))


def test_many_jobs_come_before_large_ones(tmp_path: Path) -> None:
    for jobs, workers in ((1, 1000), (1000, 10), (1, 10), (10, 10)):
        results.write(tmp_path, a_result(jobs, workers))
    order = [(result.jobs, result.workers) for result in results.read_all(tmp_path)]
    assert order == [(10, 10), (1000, 10), (1, 10), (1, 1000)]


def test_tables_have_a_column_for_each_run_and_say_what_was_not_measured() -> None:
    text = results.tables([a_result(), Result(1, 4000, "now", error="TimeoutError")])
    assert "| jobs x workers | 100 x 10 | 1 x 4000 |" in text
    assert "| operator's memory limit | 512Mi | - |" in text
    assert "| its Lease, deadline and pause, s | 4, 3, 1 | - |" in text
    assert "| created a second | 160 | - |" in text
    assert "| lost pod to round, s | 0.10, 0.25, 0.30 | - |" in text
    assert "| operator | quiet | 0.31 | - |" in text
    assert "etcd" not in text, "programs with few cores are left out"


def test_page_lacks_the_place_for_the_tables() -> None:
    with pytest.raises(ValueError, match="figures: written by"):
        results.page("# Scale\n", [])


def test_page_has_the_figures_that_are_kept() -> None:
    text = PAGE.read_text()
    assert text == results.page(text, results.read_all(KEPT)), "run `make scale ARGS=--docs`"


def test_options() -> None:
    options = parse_options(["--jobs", "1000", "--workers", "10"])
    assert (options.jobs, options.workers, options.quiet, options.curve) == (1000, 10, 60.0, False)
