import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from elastic_pytorch_client.completion import candidates
from elastic_pytorch_client.verbs.context import job_name

from tests.plugin.recorded_cluster import RecordedCluster, moment_of

Epj = Callable[..., tuple[int, str]]
VERBS = {"list": [], "status": ["no-volume"], "why": ["no-volume"], "stacks": ["char-lm"]}


def a_cluster() -> RecordedCluster:
    cluster = RecordedCluster("young", "no-volume")
    for name in ("char-lm", "no-volume"):
        cluster._jobs[name]["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    cluster.said = json.dumps({57: '  File "train.py", line 9 in step'})
    return cluster


def shown(epj: Epj, verb: str, form: str) -> str:
    return epj(a_cluster(), verb, *VERBS[verb], "-o", form, now=moment_of("no-volume"), width=60)[1]


@pytest.mark.parametrize("verb", VERBS)
def test_yaml_says_what_json_says(verb: str, epj: Epj) -> None:
    assert yaml.safe_load(shown(epj, verb, "yaml")) == json.loads(shown(epj, verb, "json"))


def test_what_each_verb_prints(epj: Epj) -> None:
    found: dict[str, Any] = {verb: json.loads(shown(epj, verb, "json")) for verb in VERBS}
    assert (found["list"]["kind"], len(found["list"]["items"])) == ("List", 2)
    assert "managedFields" not in json.dumps(found)
    assert found["status"] == RecordedCluster("no-volume").get_job("team", "no-volume")
    assert (found["why"]["asWanted"], found["why"]["job"], found["why"]["namespace"]) == (
        False,
        "no-volume",
        "team",
    )
    assert 'configmap "missing" not found' in found["why"]["findings"][0]["what"]
    assert found["stacks"]["groups"][0]["processes"][2] == {
        "rank": 2,
        "index": 2,
        "worker": "char-lm-worker-2-w9n54",
        "pid": 57,
    }
    assert found["stacks"]["groups"][0]["stack"].endswith("in step")


def test_names_are_what_other_verbs_take(epj: Epj) -> None:
    names = shown(epj, "list", "name").splitlines()
    assert names == [
        "elasticpytorchjob.elasticpytorch.dev/char-lm",
        "elasticpytorchjob.elasticpytorch.dev/no-volume",
    ]
    assert [job_name(name) for name in names] == ["char-lm", "no-volume"]


def test_wide_list_has_all_columns_on_any_screen(epj: Epj) -> None:
    wide = shown(epj, "list", "wide").splitlines()
    assert "INTERRUPTIONS" in wide[0]
    assert "…" not in "".join(wide)
    assert max(map(len, wide)) > 60


@pytest.mark.parametrize(
    ("form", "empty"), [("name", ""), ("json", {"apiVersion": "v1", "kind": "List", "items": []})]
)
def test_no_jobs(form: str, empty: object, epj: Epj) -> None:
    code, printed = epj(RecordedCluster(), "list", "-o", form)
    assert code == 0
    assert (json.loads(printed) if form == "json" else printed) == empty


@pytest.mark.parametrize("verb", VERBS)
def test_formats_are_completed(verb: str) -> None:
    formats = ["json", "name", "wide", "yaml"] if verb == "list" else ["json", "yaml"]
    for option in ("-o", "--output"):
        assert candidates([verb, *VERBS[verb], option, ""], lambda access: []) == (formats, ":4")
    assert candidates([verb, *VERBS[verb], "-o", "y"], lambda access: []) == (["yaml"], ":4")


@pytest.mark.parametrize(
    "words", [["list", "-o", "table"], ["status", "x", "-o", "wide"], ["logs", "x", "-o", "json"]]
)
def test_other_formats_are_refused(words: list[str], epj: Epj) -> None:
    with pytest.raises(SystemExit) as ended:
        epj(RecordedCluster(), *words)
    assert ended.value.code == 2
