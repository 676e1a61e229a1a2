"""The chart as the real helm renders it."""

import functools
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from tests.paths import ROOT

CHART = ROOT / "charts" / "elastic-pytorch-operator"
HELM = shutil.which(
    "helm", path=f"{ROOT / '.cluster' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
)

Object = dict[str, Any]
Test = TypeVar("Test", bound=Callable[..., object])

REGISTRY = "registry.example.com"

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # Python's own takes 0.2 s for the CRD


def needs_helm(test: Test) -> Test:
    """Marks a test that starts helm."""
    missing = pytest.mark.skipif(HELM is None, reason="needs helm, on the PATH or in .cluster/bin")
    return pytest.mark.process(missing(test))


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    assert HELM is not None
    return subprocess.run(
        [HELM, *arguments], capture_output=True, text=True, check=False, timeout=60
    )


@functools.cache
def template(
    *settings: str, kubernetes: str = "1.34.0", values: Path | None = None, registry: str = REGISTRY
) -> subprocess.CompletedProcess[str]:
    settings = (f'global.imageRegistry="{registry}"', *settings) if registry else settings
    options = [option for setting in settings for option in ("--set-json", setting)]
    files = [f"--values={values}"] if values else []
    return helm(
        "template",
        "release",
        str(CHART),
        "--namespace=the-namespace",
        f"--kube-version={kubernetes}",
        *files,
        *options,
    )


def render(*settings: str, values: Path | None = None) -> list[Object]:
    """The objects that `helm template` makes."""
    result = template(*settings, values=values)
    assert result.returncode == 0, result.stderr
    return [found for found in yaml.load_all(result.stdout, LOADER) if found]


def only(objects: list[Object], kind: str, name: str = "elastic-pytorch-operator") -> Object:
    (found,) = [o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return found


def pod_of(objects: list[Object], name: str = "elastic-pytorch-operator") -> Object:
    pod: Object = only(objects, "Deployment", name)["spec"]["template"]
    return pod


def container_of(objects: list[Object], name: str = "elastic-pytorch-operator") -> Object:
    container: Object
    (container,) = pod_of(objects, name)["spec"]["containers"]
    return container
