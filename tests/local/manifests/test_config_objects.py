from pathlib import Path
from typing import Any

import pytest
from elastic_pytorch_local.manifests.config_objects import (
    DEFAULT_MODE,
    Config,
    File,
    config_of_path,
    find_value,
    read_config,
    volume_files,
)
from elastic_pytorch_operator.spec.fields import InvalidJob

CONFIG: Config = {
    ("ConfigMap", "settings"): {"lr": b"0.1", "train.py": b"print()"},
    ("Secret", "token"): {"hub": b"abc"},
    ("ConfigMap", "empty"): {},
}
READ_ONLY = 0o400


def a_document(
    kind: str, name: str = "a", namespace: str = "default", **fields: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        **fields,
    }


def test_data_is_decoded_and_plain_text_wins() -> None:
    secret = a_document("Secret", data={"hub": "YWJj", "old": "YWJj"}, stringData={"old": "new"})
    settings = a_document("ConfigMap", data={"lr": "0.1"}, binaryData={"weights": "AAE="})
    assert read_config(
        [secret, settings, a_document("Secret", "other", "elsewhere")], "default"
    ) == {
        ("Secret", "a"): {"hub": b"abc", "old": b"new"},
        ("ConfigMap", "a"): {"lr": b"0.1", "weights": b"\x00\x01"},
    }


REFUSED = {
    "a number": (
        [a_document("ConfigMap", data={"lr": 0.1})],
        'ConfigMap a: data.lr: must be a string, not 0.1: put it in quotes, "0.1"',
    ),
    "a misspelt field": (
        [a_document("Secret", stringdata={})],
        "Secret a: stringdata: there is no such field; did you mean stringData?",
    ),
    "no base64": (
        [a_document("Secret", data={"hub": "abc"})],
        "Secret a: data.hub: must be base64: encode it, or write it as it is",
    ),
    "twice": ([a_document("Secret"), a_document("Secret")], "Secret a: is there twice"),
}


@pytest.mark.parametrize(("documents", "words"), REFUSED.values(), ids=REFUSED)
def test_faulty_object_is_refused_by_name(documents: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(InvalidJob) as refused:
        read_config(documents, "default")
    assert str(refused.value).startswith(words)


def test_file_and_folder_become_a_config_map(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()")
    (tmp_path / "nested").mkdir()
    assert (
        config_of_path(tmp_path)
        == config_of_path(tmp_path / "train.py")
        == {"train.py": b"print()"}
    )


VALUES = {
    "there": ({"name": "settings", "key": "lr"}, b"0.1"),
    "the key may be missing": ({"name": "settings", "key": "no", "optional": True}, None),
    "the object may be missing": ({"name": "no", "key": "lr", "optional": True}, None),
}


@pytest.mark.parametrize(("reference", "value"), VALUES.values(), ids=VALUES)
def test_value_of_a_key(reference: dict[str, Any], value: bytes | None) -> None:
    assert find_value(CONFIG, "ConfigMap", reference, "a") == value


MISSING = {
    "object": (
        {"name": "setting", "key": "lr"},
        "a: there is no ConfigMap setting: name its YAML file after the job's",
    ),
    "key": (
        {"name": "settings", "key": "LR"},
        "a.key: there is no LR in ConfigMap settings; did you mean lr?",
    ),
    "key of no like": (
        {"name": "settings", "key": "seed"},
        "a.key: there is no seed in ConfigMap settings: it has lr, train.py",
    ),
    "key of nothing": (
        {"name": "empty", "key": "seed"},
        "a.key: there is no seed in ConfigMap empty: it is empty",
    ),
    "name": ({"key": "lr"}, "a.name: is missing"),
    "name of the key": ({"name": "settings"}, "a.key: is missing"),
}


@pytest.mark.parametrize(("reference", "words"), MISSING.values(), ids=MISSING)
def test_what_is_missing_is_named_with_the_fix(reference: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidJob) as refused:
        find_value(CONFIG, "ConfigMap", reference, "a")
    assert str(refused.value).startswith(words)


SOME = {"name": "settings", "items": [{"key": "lr", "path": "of/lr"}]}
MODE = {"name": "settings", "items": [{"key": "lr", "path": "lr", "mode": DEFAULT_MODE}]}
FILES: dict[str, tuple[dict[str, Any], dict[str, File] | None]] = {
    "all keys": (
        {"configMap": {"name": "settings"}},
        {"lr": File(b"0.1", DEFAULT_MODE), "train.py": File(b"print()", DEFAULT_MODE)},
    ),
    "some, with modes": (
        {"configMap": {**SOME, "defaultMode": READ_ONLY}},
        {"of/lr": File(b"0.1", READ_ONLY)},
    ),
    "a Secret": ({"secret": {"secretName": "token"}}, {"hub": File(b"abc", DEFAULT_MODE)}),
    "several": (
        {
            "projected": {
                "defaultMode": READ_ONLY,
                "sources": [{"configMap": MODE}, {"secret": {"name": "token"}}],
            }
        },
        {"lr": File(b"0.1", DEFAULT_MODE), "hub": File(b"abc", READ_ONLY)},
    ),
    "one that may be missing": ({"configMap": {"name": "no", "optional": True}}, {}),
    "no file at all": ({"emptyDir": {}}, None),
}


@pytest.mark.parametrize(("volume", "files"), FILES.values(), ids=FILES)
def test_files_of_a_volume(volume: dict[str, Any], files: dict[str, File] | None) -> None:
    assert volume_files(volume, CONFIG, "v") == files


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", ""])
def test_volume_keeps_to_its_folder(path: str) -> None:
    volume = {"configMap": {"name": "settings", "items": [{"key": "lr", "path": path}]}}
    with pytest.raises(
        InvalidJob, match=r"v.configMap.items\[0\].path: must be a path in the volume"
    ):
        volume_files(volume, CONFIG, "v")
