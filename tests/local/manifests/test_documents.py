"""A job's files are read as kubectl reads them; what cannot be a job is named."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from elastic_pytorch_local.manifests.admission import admit
from elastic_pytorch_local.manifests.documents import read_documents
from elastic_pytorch_operator.spec.fields import InvalidJob

from tests.paths import TEMPLATES

JOB = "apiVersion: elasticpytorch.dev/v1alpha1\nkind: ElasticPyTorchJob\nmetadata: {name: lm}\n"
CONFIG = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {lr: '0.1'}\n"

REFUSED = {
    "no job": (CONFIG, "kind: the file holds no ElasticPyTorchJob"),
    "a misspelt kind": (
        JOB.replace("PyTorch", "Pytorch"),
        "no ElasticPyTorchJob; found only as ElasticPytorchJob",
    ),
    "two jobs": (
        f"{JOB}---\n{JOB}",
        "kind: there are 2 ElasticPyTorchJobs: give each a file and a command of its own",
    ),
    "no kind": ("metadata: {name: lm}\n", "kind: is missing"),
    "no object": ("- 1\n", "kind: is missing"),
    "another version": (
        JOB.replace("v1alpha1", "v1"),
        "apiVersion: must be elasticpytorch.dev/v1alpha1, not 'elasticpytorch.dev/v1'",
    ),
    "no name": (JOB.replace("name: lm", ""), "metadata.name: is missing"),
    "a key that comes twice": (
        f"{JOB}spec:\n  replicas: 1\n  replicas: 2\n",
        "line 6: replicas is there twice",
    ),
}


def read(tmp_path: Path, *texts: str) -> Any:
    paths = []
    for number, text in enumerate(texts):
        paths.append(tmp_path / f"{number}.yaml")
        paths[-1].write_text(text)
    return read_documents(paths)


@pytest.mark.parametrize(("text", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_job_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidJob, match=words.replace("(", r"\(").replace("[", r"\[")):
        read(tmp_path, text)


def test_objects_are_found_in_all_files_and_stand_in_the_namespace_of_the_job(
    tmp_path: Path,
) -> None:
    job = JOB.replace("name: lm", "name: lm, namespace: research")
    found = read(
        tmp_path,
        f"{job}---\n---\n{CONFIG}",
        CONFIG.replace("ConfigMap", "Secret"),
        CONFIG.replace("ConfigMap", "Service"),
    )
    assert found.job["metadata"] == {"name": "lm", "namespace": "research"}
    assert [(each["kind"], each["metadata"]["namespace"]) for each in found.config] == [
        ("ConfigMap", "research"),
        ("Secret", "research"),
    ]
    assert found.others == ["Service settings"]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e-3", 0.001),
        ("'1e-3'", "1e-3"),
        ("2026-01-01", "2026-01-01"),
        ("0.5", 0.5),
        ("1e", "1e"),
        ("e3", "e3"),
        ("1:30", "1:30"),
        ("-", None),
        ("{[a]: b}", None),
    ],
)
def test_values_are_what_kubectl_makes_of_them(tmp_path: Path, written: str, value: object) -> None:
    if value is None:
        with pytest.raises(yaml.YAMLError):
            read(tmp_path, f"{JOB}spec: {written}\n")
    else:
        assert read(tmp_path, f"{JOB}spec: {written}\n").job["spec"] == value


def test_merged_keys_may_be_replaced(tmp_path: Path) -> None:
    assert read(tmp_path, f"{JOB}spec:\n  a: &a {{x: 1, y: 2}}\n  b: {{<<: *a, x: 3}}\n").job[
        "spec"
    ]["b"] == {"x": 3, "y": 2}


def test_job_is_merged_over_the_template_that_another_file_holds(tmp_path: Path) -> None:
    (template,) = [path for path in TEMPLATES if path.stem == "cpu"]
    spec: dict[str, Any] = {
        "replicas": 1,
        "template": {"spec": {"containers": [{"name": "pytorch", "args": ["train.py"]}]}},
    }
    spec["templateRef"] = {"name": "cpu"}
    own = yaml.safe_dump({**yaml.safe_load(JOB), "spec": spec})
    found = read(tmp_path, own, template.read_text())
    (container,) = found.job["spec"]["template"]["spec"]["containers"]
    assert (container["args"], container["image"]) == (["train.py"], "elastic-pytorch-worker:dev")
    assert found.others == []
    assert admit(found.job).ttl_seconds == 86_400
    with pytest.raises(
        InvalidJob, match="no file holds ClusterElasticPyTorchJobTemplate cpu: give its file, too"
    ):
        read(tmp_path, own)
    broken = yaml.safe_dump({**yaml.safe_load(JOB), "spec": {**spec, "template": "none"}})
    with pytest.raises(InvalidJob, match=r"spec\.template: must be an object, not 'none'"):
        read(tmp_path, broken, template.read_text())
