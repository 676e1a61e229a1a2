"""The bucket's server: what it stores and can read it notes, and it misbehaves as long as it is told to."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from elastic_pytorch.object_url import ObjectUrl
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_folder import write
from elastic_pytorch.storage.object_store import ObjectStore
from soak.bucket import read_notes
from soak.faults.bucket import FAULT_FILE

from tests.paths import ROOT
from tests.waiting import until

pytestmark = pytest.mark.process

ONCE = {"max_retries": 0, "backoff": {}}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    script = ROOT / "hack" / "soak" / "scripts" / "object_server.py"
    command = [sys.executable, str(script), str(tmp_path), "0", "s3://bucket/job"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{int(server.stdout.readline())}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "test")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        yield ObjectStore(ObjectUrl("s3", "bucket", "job"), ONCE)
        server.kill()


def test_it_notes_what_it_has_stored_and_does_nothing_while_told_so(store: ObjectStore, tmp_path: Path) -> None:
    write(store, StateVersion(1, 1), [b"x"], keep=2)
    until(
        lambda: any(note.read and note.version == (1, 1) for note in read_notes(tmp_path)), "the checkpoint to be read through"
    )
    fault = tmp_path / FAULT_FILE
    for kind in ("refuse-requests", "cut-connections"):
        fault.write_text(kind)
        with pytest.raises(OSError, match="bucket bucket"):
            write(store, StateVersion(1, 2), [b"x"], keep=2)
    fault.unlink()
    write(store, StateVersion(1, 3), [b"x"], keep=2)
    assert [note.version for note in read_notes(tmp_path) if not note.read] == [(1, 1), (1, 3)]
