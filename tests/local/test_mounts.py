from pathlib import Path
from typing import Any

import pytest
from elastic_pytorch_local.manifests.config_objects import Config
from elastic_pytorch_local.pods.mounts import map_path, mount_volumes

MAPPED = {
    "/data": Path("/w/data"),
    "/data/fast": Path("/w/fast"),
    "/scripts/": Path("/w/scripts"),
    "/tmp": Path("/w/tmp"),
}

WORDS = {
    "/data": "/w/data",
    "/data/": "/w/data/",
    "/data/a": "/w/data/a",
    "/data/fast/a": "/w/fast/a",
    "/scripts/train.py": "/w/scripts/train.py",
    "--data=/data/a": "--data=/w/data/a",
    "/scripts:/data:/usr/lib": "/w/scripts:/w/data:/usr/lib",
    "cat '/data/a' && ls /data; rm /data-old": "cat '/w/data/a' && ls /w/data; rm /data-old",
    "/data.tar": "/data.tar",
    "/database": "/database",
    "/my/data": "/my/data",
    "./data": "./data",
    "s3://bucket/data": "s3://bucket/data",
    "file:///data": "file:///data",
    "/tmp/a": "/tmp/a",
    "data": "data",
}


@pytest.mark.parametrize("word", WORDS)
def test_path_in_a_word(word: str) -> None:
    assert map_path(word, MAPPED) == WORDS[word]


def test_nothing_is_mounted() -> None:
    assert map_path("/data/a", {}) == "/data/a"


CONFIG: Config = {("ConfigMap", "settings"): {"lr": b"0.1", "seed": b"7"}}


def folders(tmp_path: Path, volume: dict[str, Any], *mounts: dict[str, Any]) -> dict[str, Path]:
    container = {"volumeMounts": [{"name": "a", **mount} for mount in mounts]}
    return mount_volumes(
        tmp_path,
        {"metadata": {"name": "w0"}, "spec": {"volumes": [{"name": "a", **volume}]}},
        container,
        CONFIG,
    )


def test_pods_own_folder_and_a_part_of_it(tmp_path: Path) -> None:
    found = folders(
        tmp_path, {"emptyDir": {}}, {"mountPath": "/a"}, {"mountPath": "/b", "subPath": "part"}
    )
    assert found == {
        "/a": tmp_path / "volumes" / "w0" / "a",
        "/b": tmp_path / "volumes" / "w0" / "a" / "part",
    }
    assert found["/b"].is_dir()


def test_folder_of_a_claim_is_that_of_all_pods(tmp_path: Path) -> None:
    found = folders(tmp_path, {"persistentVolumeClaim": {"claimName": "data"}}, {"mountPath": "/a"})
    assert found == {"/a": tmp_path / "volumes" / "shared" / "a"}


def test_config_map_is_mounted_as_a_whole_and_as_one_file(tmp_path: Path) -> None:
    volume = {"configMap": {"name": "settings", "defaultMode": 0o440}}
    found = folders(
        tmp_path, volume, {"mountPath": "/a"}, {"mountPath": "/b/lr.txt", "subPath": "lr"}
    )
    assert sorted(path.name for path in found["/a"].iterdir()) == ["lr", "seed"]
    assert found["/b/lr.txt"].read_text() == "0.1"
    assert found["/b/lr.txt"].stat().st_mode & 0o777 == 0o440
    assert found["/a"].stat().st_mode & 0o777 == 0o700, (
        "others of this machine do not read a Secret"
    )
