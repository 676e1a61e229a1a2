from pathlib import Path

import pytest
from scale.machine import OTHERS, busiest, cores, find_process, processor_seconds, program_of, rates, samples

METRICS = """\
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="pods",verb="LIST"} 7
apiserver_request_total{code="200",resource="jobs",verb="LIST"} 2
apiserver_request_total{code="201",resource="pods",verb="POST"} 1e+03
apiserver_request_total_more{verb="POST"} 5
process_cpu_seconds_total 12.5
"""


def process(proc: Path, number: int, arguments: list[str], ticks: int, **environment: str) -> None:
    folder = proc / str(number)
    folder.mkdir(parents=True)
    (folder / "cmdline").write_bytes("".join(f"{argument}\0" for argument in arguments).encode())
    (folder / "stat").write_text(f"{number} (a name) of (its own) S {'0 ' * 10}{ticks} {ticks} 0 0\n")
    (folder / "environ").write_bytes("".join(f"{name}={value}\0" for name, value in environment.items()).encode())


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    process(tmp_path, 7, ["/usr/local/bin/kube-apiserver", "--v=1"], 100)
    process(tmp_path, 8, ["python3", "-m", "elastic_pytorch_operator", "run"], 50, POD_NAME="operator-a")
    process(tmp_path, 9, ["python3", "-m", "elastic_pytorch_operator", "run"], 25, POD_NAME="operator-b")
    process(tmp_path, 10, ["vim"], 1000)
    process(tmp_path, 11, [], 1000)  # a thread of the kernel
    (tmp_path / "stat").write_text("cpu  100 20 30 5000 400 5 6 7 0 0\n")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "program"),
    [
        (["etcd", "--v"], "etcd"),
        (["/x/kwok"], "kwok"),
        (["python3", "-u", "-m", "scale.generator"], "load generator"),
        (["python3", "-m"], None),
        (["bash"], None),
        ([], None),
    ],
)
def test_programs_by_their_command_line(arguments: list[str], program: str | None) -> None:
    assert program_of(arguments) == program


def test_processor_seconds_of_programs_and_of_all(proc: Path) -> None:
    found = processor_seconds(proc)
    assert found["API server"] == pytest.approx(2 * found["operator"] / 1.5)
    assert set(found) == {"API server", "operator", "all"}


def test_what_belongs_to_no_program_is_left_over() -> None:
    before, after = {"etcd": 1.0, "all": 10.0}, {"etcd": 3.0, "kwok": 6.0, "all": 30.0}
    assert cores(before, after, 10.0) == {OTHERS: 1.2, "kwok": 0.6, "etcd": 0.2}


def test_operator_is_found_by_its_pod(proc: Path) -> None:
    assert find_process("operator-b", "elastic_pytorch_operator", proc) == 9
    assert find_process("operator-c", "elastic_pytorch_operator", proc) is None


def test_samples_are_summed_up_by_a_label() -> None:
    assert samples(METRICS, "apiserver_request_total", "verb") == {"LIST": 9, "POST": 1000}
    assert samples(METRICS, "process_cpu_seconds_total") == {"": 12.5}
    assert rates({"LIST": 5.0}, {"LIST": 9.0, "POST": 1000.0, "GET": 0.0}, 10.0) == {"POST": 100.0, "LIST": 0.4}


def test_profile_counts_where_samples_end() -> None:
    stacks = ["main;run;plan 6", "main;run 1", "main;serve;plan 3", "main;run;EpollSelector.select (selectors.py:468) 90"]
    assert busiest(stacks, 2) == [("plan", 0.9), ("run", 0.1)]
