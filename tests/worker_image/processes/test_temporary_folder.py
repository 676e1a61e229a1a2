import os
import tempfile
from pathlib import Path

import pytest
from elastic_pytorch.processes.temporary_folder import (
    TemporaryFolderError,
    candidates,
    choose_temporary_folder,
    make_temporary_folder_again,
)

COMMON = ["/tmp", "/var/tmp", "/dev/shm", "/app"]
TOO_LONG = "t" * 90  # a socket's path has 107 characters at most


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", "/proc/nothing")


@pytest.mark.parametrize(
    ("environ", "first"),
    [
        ({}, []),
        ({"TMPDIR": "/scratch", "TMP": "/other"}, ["/scratch", "/other"]),
        ({"TMPDIR": "", "TEMP": "/scratch/"}, ["/scratch"]),
        ({"TMPDIR": "/tmp"}, []),
    ],
)
def test_folders_to_try(environ: dict[str, str], first: list[str]) -> None:
    assert candidates(environ, "/app") == [*first, *COMMON]


def test_first_folder_that_holds_files_and_sockets(tmp_path: Path) -> None:
    long, file, good = tmp_path / TOO_LONG, tmp_path / "file", Path(tempfile.mkdtemp())
    long.mkdir()
    file.touch()
    assert choose_temporary_folder(["/proc", str(file), str(long), str(good)]) == str(good)
    assert tempfile.gettempdir() == str(good)
    assert not list(good.iterdir())
    good.rmdir()
    assert os.environ["TMPDIR"] == "/proc/nothing", "a script's Python finds a folder by itself"


def test_no_folder() -> None:
    with pytest.raises(
        TemporaryFolderError,
        match=r"set TMPDIR .* tried: /proc/nothing \(No such file or directory\)",
    ):
        choose_temporary_folder(["/proc/nothing"])


def test_temporary_folder_is_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone" / "tmp"))
    for _ in range(2):
        make_temporary_folder_again()
        assert Path(tempfile.gettempdir()).is_dir()
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nothing")
    make_temporary_folder_again()  # the start of workers will tell
