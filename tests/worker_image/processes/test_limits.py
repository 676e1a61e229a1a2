import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from elastic_pytorch.processes.limits import MOST_OPEN_FILES, cpu_limit, limit_threads

V1 = ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")


def a_cgroup(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"cpu.max": "200000 100000\n"}, 2.0),
        ({"cpu.max": "50000 100000\n"}, 0.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({V1[0]: "400000\n", V1[1]: "100000\n"}, 4.0),
        ({V1[0]: "-1\n", V1[1]: "100000\n"}, None),
        ({"cpu.max": ""}, None),
        ({"cpu.max": "1 0"}, None),
        ({V1[0]: "400000\n"}, None),
        ({}, None),
    ],
)
def test_limit_of_a_container(
    tmp_path: Path, files: Mapping[str, str], limit: float | None
) -> None:
    assert cpu_limit(a_cgroup(tmp_path, files)) == limit


@pytest.mark.parametrize(
    ("workers", "arguments", "given", "threads"),
    [
        ("1", [], None, "1"),
        ("", [], None, "1"),
        ("4", [], None, "1"),
        ("4", [], "8", "8"),
        ("1", [], "8", "8"),
        ("gpu", [], None, None),
        ("1", ["--nproc-per-node=2"], None, None),
    ],
)
def test_threads_of_a_container_with_one_core(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: str,
    arguments: list[str],
    given: str | None,
    threads: str | None,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    monkeypatch.setenv("PET_NPROC_PER_NODE", workers)
    limit_threads(arguments, a_cgroup(tmp_path, {"cpu.max": "100000 100000"}))
    assert os.environ.get("OMP_NUM_THREADS") == threads


def test_container_without_a_limit_keeps_what_torch_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("PET_NPROC_PER_NODE", "1")
    limit_threads([], tmp_path)
    assert "OMP_NUM_THREADS" not in os.environ


RAISE = (
    "from elastic_pytorch.processes.limits import raise_open_files; import resource; "
    "raise_open_files(); print(*resource.getrlimit(7))"
)


@pytest.mark.process
@pytest.mark.parametrize(
    ("soft", "hard", "raised"), [(64, 2000, 2000), (2000, 2000, 2000), (1024, None, None)]
)
def test_files_up_to_the_hard_limit(soft: int, hard: int | None, raised: int | None) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    hard = most if hard is None else hard
    found = subprocess.run(
        [
            "sh",
            "-c",
            f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$@"',
            "sh",
            sys.executable,
            "-c",
            RAISE,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert [int(number) for number in found.stdout.split()] == [
        raised or min(hard, MOST_OPEN_FILES),
        hard,
    ]
