"""`kubectl epj exec`: kubectl is given the pod of the rank, and its training container."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.plugin.recorded_cluster import RecordedCluster, job_of, recorded

Epj = Callable[..., tuple[int, str]]
FIRST, SECOND, _ = job_of("young").members


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """A kubectl that writes down what it is given, and ends with the exit code 7."""
    (tmp_path / "kubectl").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/given\nexit 7\n')
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return lambda: (tmp_path / "given").read_text().splitlines()


def test_command_of_a_rank(epj: Epj, kubectl: Callable[[], list[str]]) -> None:
    code, _ = epj(RecordedCluster("young"), "exec", "char-lm", "--rank", "1", "--", "ls", "-l", "--", "/tmp")
    assert code == 7, "the command's own"
    assert kubectl() == ["exec", SECOND.name, "--namespace=team", "--container=pytorch", "--", "ls", "-l", "--", "/tmp"]


def test_terminal_and_access(epj: Epj, kubectl: Callable[[], list[str]]) -> None:
    words = ["--context=far", "exec", "-it", "epj/char-lm", "--kubeconfig", "file", "--index", str(FIRST.index), "--", "bash"]
    epj(RecordedCluster("young"), *words)
    access, streams = ["--kubeconfig=file", "--context=far"], ["--stdin", "--tty"]
    assert kubectl()[:5] == [*access, "exec", *streams]


def test_container_is_the_one_that_the_operator_has_written(epj: Epj, kubectl: Callable[[], list[str]]) -> None:
    cluster = RecordedCluster("young")
    cluster._pods = recorded("young")["pods"]
    for pod in cluster._pods:
        pod["metadata"].setdefault("annotations", {})["elasticpytorch.dev/training-container"] = "main"
    epj(cluster, "exec", "char-lm", "--rank", "0", "--", "true")
    assert "--container=main" in kubectl()


def test_rank_that_is_not_there(epj: Epj, capsys: pytest.CaptureFixture[str]) -> None:
    assert epj(RecordedCluster("young"), "exec", "char-lm", "--rank", "9", "--", "true")[0] == 1
    assert "char-lm has no rank 9 now; `kubectl epj status char-lm`" in capsys.readouterr().err


def test_no_kubectl(epj: Epj, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert epj(RecordedCluster("young"), "exec", "char-lm", "--rank", "0", "--", "true")[0] == 1
    assert capsys.readouterr().err == "error: exec needs kubectl, which is not on the PATH\n"


@pytest.mark.parametrize("words", [["--rank", "0"], ["--", "true"], ["--rank", "0", "--index", "1", "--", "true"]])
def test_wrong_usage(words: list[str], epj: Epj) -> None:
    with pytest.raises(SystemExit) as ended:
        epj(RecordedCluster("young"), "exec", "char-lm", *words)
    assert ended.value.code == 2
