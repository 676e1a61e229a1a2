"""A release as its users have it: registry, files, and the commands of docs/operate/install.md."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from measure.kind_cluster import KUBECTL, OPERATOR_NAMESPACE, OPERATORS
from packaging.version import Version

from tests.documentation import block, blocks
from tests.e2e.api_requests import KUBECONFIG
from tests.e2e.endless_job import pods_of, start, steps_with
from tests.e2e.job_under_test import JobUnderTest, leading_operator, run_kubectl
from tests.e2e.node_registry import gateway, pulled_from
from tests.e2e.release import NAME, operators, remove_release, restored
from tests.paths import ROOT
from tests.release.registry import running_registry
from tests.waiting import until

pytestmark = pytest.mark.long

VERSION = (ROOT / "VERSION").read_text().strip()
TOOLS = ROOT / ".cluster" / "bin"
INSTALL = ROOT / "docs" / "operate" / "install.md"
GETTING_STARTED = ROOT / "docs" / "use" / "getting-started.md"
# What pipx does, as far as it is needed here.
PIPX = """#!/bin/sh -e
python3 -m venv "$HOME/pipx"
"$HOME/pipx/bin/pip" install --quiet "$2"
ln -s "$HOME/pipx/bin/kubectl-epj" "$HOME/bin/"
"""
# In the place of PyTorch's own image, as the docs name it: Debian's torch, which is that of the
# worker image.
TORCH_IMAGE = "elastic-pytorch-stand-in-for-torch:test"
TORCH_DOCKERFILE = (
    "FROM elastic-pytorch-worker-base:dev\nENV USE_LIBUV=0 PIP_BREAK_SYSTEM_PACKAGES=1\n"
)


@dataclass(frozen=True)
class User:
    """Someone with kubectl, helm and Docker, a release's files, and its registry's address."""

    home: Path
    registry: str

    def does(self, text: str) -> str:
        """Runs commands of a page in the user's folder; returns what they print."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in {"PYTHONPATH", "VIRTUAL_ENV"}
        }
        environment |= {
            "HOME": str(self.home),
            "KUBECONFIG": str(self.home / "kubeconfig"),
            "DOCKER_BUILDKIT": "0",
        }
        environment["PATH"] = (
            f"{self.home / 'library/bin'}:{self.home / 'bin'}:{os.environ['PATH']}"
        )
        command = ["bash", "-euo", "pipefail", "-c", self.filled_in(text)]
        done = subprocess.run(
            command,
            cwd=self.home,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"{self.filled_in(text)}{done.stdout}{done.stderr}"
        return done.stdout

    def filled_in(self, text: str) -> str:
        """Replaces what a page writes for the registry and for the version."""
        return (
            text.replace("-VERSION-py3", f"-{Version(VERSION)}-py3")
            .replace("VERSION", VERSION)
            .replace("REGISTRY", self.registry)
        )


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with (
        running_registry(tmp_path_factory.mktemp("registry"), gateway()) as host,
        pulled_from(host),
    ):
        yield f"{host}/ml"


@pytest.fixture(scope="module")
def dist(registry: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release") / "dist"
    request = {
        "VERSION": VERSION,
        "REGISTRY": registry,
        "PUSH": "1",
        "PLAIN_HTTP": "1",
        "DIST": str(folder),
        "ALLOW_DIRTY": "1",
    }
    release = ROOT / "hack" / "release" / "release.sh"
    done = subprocess.run(
        [release],
        env=os.environ | request,
        stdout=subprocess.PIPE,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    print(done.stdout)
    return folder


@pytest.fixture(scope="module")
def user(registry: str, dist: Path, tmp_path_factory: pytest.TempPathFactory) -> User:
    home = tmp_path_factory.mktemp("home")
    (home / "bin").mkdir()
    for tool in (KUBECTL, TOOLS / "helm"):
        (home / "bin" / tool.name).symlink_to(tool)
    (home / "bin" / "pipx").write_text(PIPX)
    (home / "bin" / "pipx").chmod(0o755)
    (home / "kubeconfig").write_bytes(KUBECONFIG.read_bytes())
    for file in dist.iterdir():
        (home / file.name).write_bytes(file.read_bytes())
    someone = User(home, registry)
    someone.does("python3 -m venv library")
    return someone


@pytest.fixture(scope="module", autouse=True)
def _operator_of_the_checkout_in_the_end(registry: str) -> Iterator[None]:
    with restored():
        yield


def push(image: str, target: str, folder: Path) -> None:
    """Copies an image of Docker's into the registry, which Docker does not trust without TLS."""
    archive = folder / "image.tar"
    subprocess.run(["docker", "save", "--output", archive, image], check=True, timeout=600)
    host = ("--host", f"reg={target.partition('/')[0]},tls=disabled")
    subprocess.run(
        [TOOLS / "regctl", *host, "image", "import", target, archive], check=True, timeout=600
    )
    archive.unlink()


def digests(dist: Path) -> dict[str, str]:
    return dict(re.findall(r"([\w-]+):[^@/]+@(sha256:\w+)", (dist / "images.txt").read_text()))


def running_images(namespace: str, selector: str, kind: str = "containerStatuses") -> set[str]:
    found = json.loads(
        run_kubectl("-n", namespace, "get", "pods", "-l", selector, "-o", "json").stdout
    )
    return {
        status["imageID"].partition("@")[2]
        for pod in found["items"]
        for status in pod["status"][kind]
    }


def test_release_is_installed_and_trains_without_a_checkout(
    user: User, dist: Path, namespace: str
) -> None:
    remove_release()
    run_kubectl(
        "delete",
        "crd",
        "elasticpytorchjobs.elasticpytorch.dev",
        "--ignore-not-found",
        "--timeout=60s",
    )
    install(user)
    assert running_images(OPERATOR_NAMESPACE, OPERATORS) == {digests(dist)[NAME]}

    user.does(block(INSTALL, "pipx install elastic_pytorch_client-"))
    assert user.does(
        "python -c 'import elastic_pytorch; print(elastic_pytorch.__file__)'"
    ).startswith(str(user.home))
    user.does(f"kubectl config set-context --current --namespace={namespace}")

    image = f"{user.registry}/first:1"
    build_training_image(user, image)
    manifest = block(GETTING_STARTED, "apiVersion: elasticpytorch.dev").replace(
        "/scripts/train.py", "/training/train.py"
    )
    manifest = re.sub(r"image: .*", f"image: {image}", manifest).partition(
        "          volumeMounts:"
    )[0]
    # The agent of the operator's release, and then the one that the wheel has put into the image.
    for number, agent in enumerate(({"elastic-pytorch-agent"}, set())):
        name = f"first-{number}"
        text = manifest.replace("name: first", f"name: {name}")
        (user.home / "job.yaml").write_text(
            text if agent else text.replace("spec:\n", "spec:\n  injectAgent: false\n", 1)
        )
        user.does("kubectl apply --filename job.yaml")
        user.does(f"kubectl wait --for=condition=Complete epj/{name} --timeout=5m")
        selector = f"elasticpytorch.dev/job-name={name}"
        injected = running_images(namespace, selector, "initContainerStatuses") if agent else set()
        assert injected == {digests(dist)[each] for each in agent}
        assert name in user.does(f"kubectl epj status {name}")
        user.does(f"kubectl delete epj {name}")


def install(user: User) -> None:
    user.does(block(INSTALL, f"helm install {NAME} oci://REGISTRY/").rstrip() + " --plain-http")


def build_training_image(user: User, image: str) -> None:
    """Puts install.md's image with the script of getting-started.md into the registry."""
    script = next(each.text for each in blocks(GETTING_STARTED) if each.file == "train.py")
    (user.home / "train.py").write_text(script)
    (user.home / "torch.Dockerfile").write_text(TORCH_DOCKERFILE)
    dockerfile = re.sub(r"^FROM .*", f"FROM {TORCH_IMAGE}", block(INSTALL, "FROM "))
    (user.home / "Dockerfile").write_text(user.filled_in(dockerfile))
    try:
        user.does(
            f"docker build --tag {TORCH_IMAGE} - <torch.Dockerfile && docker build --tag {image} ."
        )
        push(image, image, user.home)
    finally:
        user.does(f"docker image rm --force {image} {TORCH_IMAGE}")


# Of a sort each; a worker of the last one is lost with each change of the release.
JOBS: dict[str, dict[str, Any]] = {
    "elastic": {"replicas": 2, "minReplicas": 1, "maxReplicas": 3},
    "fixed": {"replicas": 2},
    "stock": {"replicas": 2, "minReplicas": 2, "maxReplicas": 2, "rendezvous": {"backend": "c10d"}},
    "idle": {"replicas": 1, "suspend": True},
    "hurt": {"replicas": 2, "minReplicas": 1},
}
CALM = ("elastic", "fixed", "stock", "templated")


def test_jobs_of_all_sorts_go_on_through_an_upgrade_and_the_way_back_with_faults_meanwhile(
    user: User, namespace: str, template: str
) -> None:
    """Nothing has been released yet, so the release before is this one with other values."""
    remove_release()
    install(user)
    jobs = {name: start(namespace, name, **fields) for name, fields in JOBS.items()}
    jobs["templated"] = start(namespace, "templated", replicas=2, templateRef={"name": template})
    elastic, hurt, idle = (jobs[name] for name in ("elastic", "hurt", "idle"))
    for name in (*CALM, "hurt"):
        jobs[name].until_world(2)
    run_kubectl("delete", "cepjt", template)
    first = elastic.members()[0]
    elastic.until_stepping(first, 2)
    before = {name: (pods_of(jobs[name]), jobs[name].status["round"]) for name in CALM}

    path = f"charts/{NAME}"
    upgrade = block(INSTALL, f"helm upgrade {NAME} {path}").replace(
        path, f"oci://REGISTRY/{path} --version VERSION"
    )
    rollback = f"helm rollback {NAME} --namespace {OPERATOR_NAMESPACE} --wait"
    for number, change in enumerate(
        (f"{upgrade.rstrip()} --set logLevel=DEBUG --plain-http", rollback), start=1
    ):
        former, victim = operators(), hurt.members()[-1]
        hurt.kubectl("delete", "pod", victim, "--wait=false")
        user.does(change)
        until(lambda former=former: not former & operators(), "other pods of the operator")
        leader = leading_operator()["metadata"]["name"]
        run_kubectl(
            "-n", OPERATOR_NAMESPACE, "delete", "pod", leader, "--force", "--grace-period=0"
        )
        leading_operator(other_than=leader)
        hurt.until_replaced(victim, 2)
        for job in jobs.values():
            until_managed(job, ttlSecondsAfterFinished=1000 + number)
        until_more_steps(elastic, first)
        assert {name: (pods_of(jobs[name]), jobs[name].status["round"]) for name in CALM} == before
        until(lambda: len(pods_of(hurt)) == 2, "none to be left behind")
        assert not pods_of(idle)

    until_managed(idle, suspend=False)
    idle.until_world(1)
    elastic.kubectl("scale", "epj/elastic", "--replicas=3")
    elastic.until_world(3)
    elastic.until_stepping(first, 3)
    alone = steps_with(elastic.logs(first), 2)
    assert alone == list(range(alone[0], alone[0] + len(alone))), "no step was done twice"


def until_managed(job: JobUnderTest, **fields: Any) -> None:
    """Changes a job's spec, and waits until an operator has seen that."""
    job.kubectl("patch", "epj", job.name, "--type=merge", "-p", json.dumps({"spec": fields}))
    generation = job.get()["metadata"]["generation"]
    job.until(
        lambda status: status.get("observedGeneration") == generation,
        f"{job.name} to be looked after",
    )


def until_more_steps(job: JobUnderTest, pod: str) -> None:
    seen = steps_with(job.logs(pod), 2)[-1]
    job.until(
        lambda _: steps_with(job.logs(pod), 2)[-1] > seen + 30,
        "some seconds under another operator",
    )
