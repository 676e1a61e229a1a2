"""The verb that migrates: what goes to stdout, what to stderr, and how it ends.

No cluster is asked.
"""

import io
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from elastic_pytorch_client import cli
from elastic_pytorch_client.cluster import Access, Cluster
from rich.console import Console

from tests.paths import ROOT

JOB = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: {name}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: pytorch
              image: my-image
              {start}
"""
GOOD = JOB.format(name="good", start="command: [torchrun, train.py]")
BAD = JOB.format(name="bad", start="args: [--epochs=1]")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line without a cluster; returns its exit code, stdout and stderr."""

    def connect(access: Access) -> Cluster:
        raise AssertionError("no cluster is needed")

    def run_words(*words: str) -> tuple[int, str, str]:
        code = cli.run(["migrate", *words], connect, Console(file=io.StringIO()))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run_words


def test_manifests_go_to_stdout_and_remarks_to_stderr(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(GOOD)
    code, out, err = run("-f", str(file))
    assert code == 0
    assert out.startswith("apiVersion: elasticpytorch.dev/v1alpha1\nkind: ElasticPyTorchJob\n")
    assert "          args: [train.py]\n" in out
    assert err.startswith(
        f"{file}: PyTorchJob good\n  spec.pytorchReplicaSpecs.Worker.restartPolicy: "
        "OnFailure restarted"
    )


def test_what_cannot_be_migrated_fails_and_the_rest_is_written(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(
        f"{BAD}---\n{GOOD}---\nkind: ConfigMap\napiVersion: v1\nmetadata: {{name: data}}\n"
    )
    code, out, err = run(str(file))
    assert code == 1
    assert [line for line in out.splitlines() if line.startswith(("kind", "  name"))] == [
        "kind: ElasticPyTorchJob",
        "  name: good",
        "kind: ConfigMap",
        "  name: data",
    ]
    assert f"{file}: PyTorchJob bad\n  error: spec.pytorchReplicaSpecs.Worker" in err
    assert (
        f"{file}: ConfigMap data\n  kind: is none that is migrated: "
        "the object is written as it is\n" in err
    )


def test_what_is_the_same_for_several_jobs_is_said_once(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    jobs = [GOOD.replace("good", f"job-{number}") for number in range(5)]
    file.write_text("---\n".join([*jobs, BAD, GOOD.replace("OnFailure", "Never")]))
    code, _, err = run(str(file))
    lines = err.splitlines()
    assert code == 1
    assert [line.removeprefix(f"{file}: ") for line in lines if not line.startswith(" ")] == [
        "5 objects (PyTorchJob job-0, PyTorchJob job-1, PyTorchJob job-2, and 2 more)",
        # Auto starts one process for each core.
        "6 objects (PyTorchJob job-0, PyTorchJob job-1, PyTorchJob job-2, and 3 more)",
        "PyTorchJob bad",
        "PyTorchJob good",
    ]
    assert err.count("OnFailure restarted") == 1
    assert err.count("Never failed the job") == 1


def test_stdin_and_the_entrypoint_of_the_image(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(BAD))
    code, out, err = run("-f", "-", "--entrypoint", "python /var/train.py")
    assert code == 0
    assert "args: [/var/train.py, --epochs=1]" in out
    assert err.startswith("stdin: PyTorchJob bad\n")


def test_a_runtime_from_another_file(run: Run, tmp_path: Path) -> None:
    case = (
        ROOT / "tests" / "plugin" / "migration" / "cases" / "trainjob-with-runtime" / "before.yaml"
    ).read_text()
    runtime, _, job = case.partition("---\n")
    (tmp_path / "runtime.yaml").write_text(runtime)
    (tmp_path / "job.yaml").write_text(job)
    code, _, err = run(str(tmp_path / "job.yaml"))
    assert code == 1
    assert "ClusterTrainingRuntime torch-team is not known" in err
    code, out, _ = run(str(tmp_path / "job.yaml"), "--runtime", str(tmp_path / "runtime.yaml"))
    assert code == 0
    assert "image: registry.example/torch:1" in out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("just words", "document\n  error: kind: is missing: this is no Kubernetes object"),
        ("a: [", "error: cannot read "),
        ("a: b: c", "mapping values are not allowed here at line 1, column 5"),
        ("a: 0b_", "error: cannot read "),
        pytest.param(f"a: {'9' * 5000}", "error: cannot read ", id="a long number"),
        ("", "no object found"),
        ("# nothing\n---\n", "no object found"),
        ("kind: List\nitems: []", "no object found"),
        ("kind: TrainingRuntime", "no job found: pass runtimes with --runtime"),
        (
            "a: {{ .Values.image }}",
            "job.yaml is a Helm template: render it first, "
            "helm template CHART | kubectl epj migrate -f -",
        ),
        ('a: "{{ .Release.Name }}"', "job.yaml is a Helm template: render it first"),
        ("a: {{ name }}: {{ other }}", "job.yaml is a template: render it first"),
        (
            "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec: []",
            "must have Worker, Master",
        ),
        (
            "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec: x",
            "does not have the form of a PyTorchJob",
        ),
    ],
)
def test_what_is_no_manifest_is_one_sentence(
    run: Run, tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    code, out, err = run(str(file))
    assert (code, out) == (1, "")
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("version", "kind", "words"),
    [
        ("kubeflow.org/v2beta1", "MPIJob", "without MPI and Ray, write"),
        ("ray.io/v1", "RayJob", "kind: is not migrated"),
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "kind: is not migrated"),
        ("argoproj.io/v1alpha1", "Workflow", "kind: a job inside of another"),
        (
            "kubeflow.org/v1",
            "PytorchJob",
            "kind: PytorchJob is not known: write PyTorchJob, if it is one",
        ),
        ("kubeflow.org/v1", "PyTorchjobs", "write PyTorchJob"),
        ("trainer.kubeflow.org/v1alpha1", "Trainjob", "write TrainJob"),
        ("elasticpytorch.dev/v1alpha1", "ElasticPytorchJob", "write ElasticPyTorchJob"),
        (
            "kubeflow.com/v1",
            "PyTorchJob",
            "apiVersion: kubeflow.com/v1 has no PyTorchJob: the group is kubeflow.org",
        ),
    ],
)
def test_other_kinds_that_train_are_not_passed_on(
    run: Run, tmp_path: Path, version: str, kind: str, words: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\n")
    code, out, err = run(str(file))
    assert (code, out) == (1, "")
    assert f"{file}: {kind} a\n  error: " in err
    assert words in err


def test_braces_of_a_shell_or_a_workflow_are_no_helm_template(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(GOOD.replace("train.py", "train.py, '{{workflow.name}}', '{{.ID}}'"))
    assert run(str(file))[0] == 0


def test_files_that_are_not_there_or_not_named(run: Run) -> None:
    assert run("-f", "/nowhere/job.yaml")[0] == 1
    code, _, err = run()
    assert code == 1
    assert "which manifests?" in err
    code, _, err = run("-f", "-", "--entrypoint", "python 'train.py")
    assert code == 1
    assert "cannot read --entrypoint" in err


def test_a_job_that_no_cluster_would_admit_fails(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, installed = tmp_path / "job.yaml", tmp_path / "local-1.dist-info"
    file.write_text(GOOD.replace("my-image", "my-image\n              imagePullPolcy: Always"))
    installed.mkdir()
    (installed / "METADATA").write_text("Name: local\nVersion: 1\n")
    declared = tomllib.loads((ROOT / "local" / "pyproject.toml").read_text())["project"][
        "entry-points"
    ]
    lines = [
        f"[{group}]\n{name} = {value}\n"
        for group, checks in declared.items()
        for name, value in checks.items()
    ]
    (installed / "entry_points.txt").write_text("".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    code, out, err = run("-f", str(file))
    assert (code, out) == (1, "")
    assert (
        "error: the new job: no cluster would admit it: "
        "spec.template.spec.containers[0].imagePullPolcy: there is no" in err
    )


def test_a_batch_script_beside_manifests(run: Run, tmp_path: Path) -> None:
    script, manifest = tmp_path / "lm-run.sbatch", tmp_path / "job.yaml"
    script.write_text(
        "#!/bin/bash\n#SBATCH --nodes=2\nmodule load cuda\nsrun torchrun --nnodes=2 train.py\n"
    )
    manifest.write_text(GOOD)
    code, out, err = run("-f", str(manifest), "--slurm", str(script))
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("  name")] == [
        "  name: good",
        "  name: lm-run",
    ]
    assert "image: fill-in.invalid/" in out
    assert f"{script}: batch script\n  line 3: `module load cuda` is dropped" in err


def test_a_batch_script_that_is_not_there(run: Run, tmp_path: Path) -> None:
    code, out, err = run("--slurm", str(tmp_path / "none.sbatch"))
    assert (code, out) == (1, "")
    assert "cannot read" in err
