import errno
import tempfile
from pathlib import Path

import pytest
from elastic_pytorch.processes.temporary_folder import is_of_temporary_folder, make_temporary_folder_again

FULL = "No space left on device"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file"), True),  # the socket of multiprocessing
        (ConnectionRefusedError(errno.ECONNREFUSED, "Refused"), True),
        (FileNotFoundError(errno.ENOENT, "No such file", "/scratch/tmp/torchelastic_x"), True),
        (OSError(errno.ENOSPC, FULL, "/scratch/tmp/torchelastic_x/attempt_1"), True),
        (OSError(errno.ENOSPC, FULL, b"/scratch/tmp/pytorch-errorfile"), True),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "/scratch/tmp"), True),
        (FileNotFoundError(errno.ENOENT, "No such file", "/scratch/tmp/program"), False),
        (FileNotFoundError(errno.ENOENT, "No such file", "/bin/program"), False),
        (PermissionError(errno.EACCES, "Denied", "/logs/attempt_0"), False),
        (OSError(errno.ENOSPC, FULL, "/logs/attempt_0"), False),
        (OSError(errno.ENOSPC, FULL, "/scratch/tmp2/attempt_0"), False),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), False),
        (OSError(errno.EMFILE, "Too many open files"), False),
    ],
)
def test_start_fails_for_the_temporary_folder(error: OSError, expected: bool) -> None:
    assert is_of_temporary_folder(error, "/scratch/tmp", program="/scratch/tmp/program") is expected


def test_temporary_folder_is_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone" / "tmp"))
    for _ in range(2):
        make_temporary_folder_again()
        assert Path(tempfile.gettempdir()).is_dir()
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nothing")
    make_temporary_folder_again()  # the start of workers will tell
