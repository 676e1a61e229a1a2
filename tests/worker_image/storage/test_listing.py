"""Checkpoints are listed by what their folder says of them, in a folder and in a bucket alike."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from elastic_pytorch.object_url import Location, ObjectUrl, location_of
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_folder import claim, write
from elastic_pytorch.storage.listing import describe, list_checkpoints
from elastic_pytorch.storage.places import place_at
from elastic_pytorch.storage.sharded_folder import checkpoint_name, drafts_in

from tests.paths import ROOT
from tests.worker_image.object_storage import Bucket

pytestmark = pytest.mark.process


def put(folder: Location, name: str, size: int) -> None:
    place_at(folder).put(name, [bytes(size)], size, lambda: None)


def fill(folder: Location) -> None:
    """Two files, a sharded checkpoint with a file of a stage, and one of which the last file is missing."""
    claim(folder, 1)
    for step in (9, 10):
        write(folder, StateVersion(1, step), [b"state"], keep=2)
    drafts = drafts_in(folder)
    for step in (20, 30):
        version = StateVersion(1, step)
        token = drafts.begin(version)
        draft = drafts.location(version, token)
        put(draft, "__0_0.distcp", 1000)
        put(draft / "stage-1", "checkpoint-g000001-s000000020.elastic", 100)
        if step == 20:
            drafts.publish(version, token, 2, lambda draft=draft, version=version: write(draft, version, [b"rest"], keep=1))


def check(folder: Location) -> None:
    fill(folder)
    torn, sharded, second, first = list_checkpoints(folder)
    assert [each.version.step for each in (torn, sharded, second, first)] == [30, 20, 10, 9]
    assert [each.format for each in (torn, sharded, second, first)] == ["sharded", "sharded", "file", "file"]
    assert [each.complete for each in (torn, sharded, second, first)] == [False, True, True, True]
    assert (torn.size, sharded.size, second.size) == (1100, 1100 + 88, 89)
    assert sharded.name == checkpoint_name(StateVersion(1, 20))
    assert sharded.written_at >= second.written_at > 1.7e9


def test_of_a_folder(tmp_path: Path) -> None:
    check(tmp_path / "run")


def test_of_a_bucket(bucket: Bucket) -> None:
    check(location_of(bucket.url))
    assert isinstance(location_of(bucket.url), ObjectUrl)


def test_of_nothing_and_of_what_is_none(tmp_path: Path) -> None:
    assert describe(str(tmp_path / "missing")) == {"place": str(tmp_path / "missing"), "checkpoints": []}
    (tmp_path / "file").touch()
    assert describe(str(tmp_path / "file"))["error"] == "Not a directory"
    assert "a URL is not a folder" in str(describe("ftp://x/y")["error"])


def test_command_prints_each_folder_without_torch(tmp_path: Path) -> None:
    write(tmp_path, StateVersion(1, 9), [b"state"], keep=2)
    code = "import runpy, sys; sys.modules['torch'] = None; runpy.run_module('elastic_pytorch.storage.listing', run_name='__main__')"
    command = [sys.executable, "-c", code, str(tmp_path), str(tmp_path / "missing")]
    done = subprocess.run(command, env={"PYTHONPATH": str(ROOT / "worker_image")}, capture_output=True, check=True)
    here, missing = json.loads(done.stdout)
    assert (here["checkpoints"][0]["step"], missing["checkpoints"]) == (9, [])
    assert here["checkpoints"][0]["written"].endswith("Z")
