"""What stands around torchrun or Python: programs, variables of a process, old images."""

import shlex
from typing import Any

import pytest
import yaml
from elastic_pytorch_client.migration.documents import migrate_documents
from elastic_pytorch_client.migration.launch import Launch, read_launch
from elastic_pytorch_client.migration.remarks import CannotMigrate
from elastic_pytorch_client.migration.template import too_old

TORCHRUN = "torchrun --nnodes=2 --rdzv_backend c10d train.py"
KUBEFLOW = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: old}
spec:
  pytorchReplicaSpecs:
    Worker: {restartPolicy: Always, template: {spec: {containers: [{name: pytorch}]}}}
"""
TRAINER = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: old}
spec: {runtimeRef: {name: torch-distributed}, trainer: {resourcesPerNode: {requests: {cpu: 8}}}}
"""


def launch_of(command: str) -> Launch:
    return read_launch("container", shlex.split(command), [])


@pytest.mark.parametrize(
    "wrapper", ["dumb-init --", "tini -g --", "/usr/bin/env", "/sbin/tini -- env", "dumb-init"]
)
def test_what_only_starts_a_program_is_dropped(wrapper: str) -> None:
    launch = launch_of(f"{wrapper} {TORCHRUN}")
    assert (launch.command, launch.args, launch.by) == ((), ("train.py",), "torchrun")
    launch = launch_of(f"{wrapper} bash -c 'exec python train.py'")
    assert (launch.command, launch.args, launch.by) == ((), ("train.py",), "python")


WRAPPERS = [
    "uv run --frozen",
    "uv run --python python3.11",
    "poetry run",
    "conda run --no-capture-output -n python",
    "numactl --cpunodebind=0 -m 0",
    "nsys profile -o report -t cuda,nvtx",
    "env OMP_NUM_THREADS=4",
    "tini -- uv run",
    "timeout 3600",
]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_what_is_around_a_program_stays_around_it(wrapper: str) -> None:
    around = wrapper.removeprefix("tini -- ").split()
    launch = launch_of(f"{wrapper} {TORCHRUN}")
    assert launch.command == (*around, "torchrun", "train.py")
    assert (launch.by, launch.options) == ("torchrun", {"nnodes": "2", "rdzv-backend": "c10d"})
    module = "python -m torch.distributed.launch --use_env"
    launch = launch_of(f"{wrapper} {module} --nnodes=2 t.py")
    assert launch.command == (*around, *module.split(), "t.py")
    launch = launch_of(f"{wrapper} bash -c 'torchrun --nnodes=$N train.py'")
    assert launch.command == (*around, "bash", "-c", "torchrun train.py")
    launch = launch_of(f"{wrapper} python train.py")
    args = ("--no-python", *around, "python", "train.py")
    assert (launch.command, launch.args, launch.by) == ((), args, "python")
    assert ("image's `python3`" in " ".join(launch.remarks)) is (
        around[0] in ("uv", "poetry", "conda")
    )
    with pytest.raises(CannotMigrate, match="Accelerate"):
        launch_of(f"{wrapper} accelerate launch train.py")


@pytest.mark.parametrize(
    "command", ["uv sync", "numactl -s", "uv run train", "conda run -n torchrun", "env A=1"]
)
def test_a_wrapper_around_nothing_that_is_known(command: str) -> None:
    wrapper = command.partition(" ")[0]
    with pytest.raises(CannotMigrate, match=f"what {wrapper} does is not known"):
        launch_of(command)


@pytest.mark.parametrize(
    "launcher",
    ["accelerate launch", "deepspeed", "composer", "trl sft", "tune run", "mpirun -np 2"],
)
def test_launchers_that_form_a_group_of_their_own(launcher: str) -> None:
    module = launcher.partition(" ")[0]
    for command in (
        f"{launcher} t.py",
        f"sh -c 'date; A=1 {launcher} t.py; python eval.py'",
        f"python -m {module}.run t.py",
        f"sh -c 'date; python -u -m {module}.run t.py'",
    ):
        with pytest.raises(
            CannotMigrate, match=r"(?i)accelerate|deepspeed|composer|trl|tune run|mpirun"
        ):
            launch_of(command)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("date; torchrun t.py --a $PET_NPROC_PER_NODE $PET_NNODES ${PET_RDZV_ID}", ""),
        (
            "date; torchrun t.py --a $PET_NODE_RANK ${MASTER_ADDR}",
            "it uses PET_NODE_RANK and MASTER_ADDR, which the container",
        ),
        (
            "RANK=0; torchrun t.py --a $RANK $MASTER_PORT $RANK $WORLD_SIZE",
            "it uses MASTER_PORT and WORLD_SIZE, which the",
        ),
        ("export PET_ROLE=x; torchrun t.py $PET_ROLE", ""),
    ],
)
def test_only_variables_that_are_not_set_are_told_of(text: str, words: str) -> None:
    remarks = " ".join(launch_of(f"bash -c '{text}'").remarks)
    assert words in remarks
    assert ("it uses" in remarks) is bool(words)


def test_arguments_may_use_what_the_container_has() -> None:
    given = "$(PET_NPROC_PER_NODE)"
    assert launch_of(f"python t.py {given}").args == ("t.py", given)
    with pytest.raises(CannotMigrate, match="use RANK and WORLD_SIZE, which only"):
        launch_of("python t.py $(RANK) $(WORLD_SIZE)")


@pytest.mark.parametrize("name", ["nnodes", "max-restarts"])
@pytest.mark.parametrize("value", ["$(A)", "$A:${B}", "$(echo 1)"])
def test_sizes_that_are_worked_out_are_dropped_with_a_remark(name: str, value: str) -> None:
    launch = launch_of(f"bash -c 'date; torchrun --{name}={value} t.py'")
    assert f"--{name}={value} is dropped" in launch.remarks[0]
    launch = launch_of(f"bash -c 'date; torchrun --{name}=$PET_NNODES t.py'")
    assert "is dropped" not in " ".join(launch.remarks)


@pytest.mark.parametrize(("written", "processes"), [("$GPUS", None), ("2", 2)])
def test_a_command_that_counts_its_processes_itself(written: str, processes: int | None) -> None:
    started = {
        "image": "i",
        "command": ["bash", "-c", f"date; torchrun --nproc-per-node={written} t.py"],
    }
    kubeflow: dict[str, Any] = yaml.safe_load(KUBEFLOW)
    worker = kubeflow["spec"]["pytorchReplicaSpecs"]["Worker"]
    worker["template"]["spec"]["containers"][0] |= started
    trainer: dict[str, Any] = yaml.safe_load(TRAINER)
    trainer["spec"]["trainer"] |= started
    for migrated in migrate_documents([kubeflow, trainer]):
        assert migrated.documents[0]["spec"].get("nprocPerNode") == processes
        assert ("spec.nprocPerNode is left out" in str(migrated.remarks)) is (processes is None)


@pytest.mark.parametrize(
    ("image", "args", "command"),
    [
        (
            "pytorch/pytorch:2.1.2-cuda12.1-cudnn8-runtime",
            "has torch 2.1: workers need torch 2.4",
            "has torch 2.1: a command",
        ),
        (
            "docker.io/pytorch/pytorch:2.5.1",
            "",
            "has torch 2.5: a command that calls torchrun needs torch 2.6",
        ),
        ("pytorch/pytorch:2.10.0", "", ""),
        ("pytorch/pytorch:latest", "", ""),
        (
            "nvcr.io/nvidia/pytorch:23.10-py3",
            "NVIDIA's images have since 24.05",
            "NVIDIA's images have since 24.11",
        ),
        ("nvcr.io/nvidia/pytorch:24.10-py3", "", "since 24.11"),
        ("nvcr.io/nvidia/pytorch:25.01-py3", "", ""),
        ("registry.example/pytorch/pytorch:1.0", "", ""),
    ],
)
def test_images_whose_torch_is_too_old(image: str, args: str, command: str) -> None:
    for wanted, found in (
        (args, too_old(image, command=False)),
        (command, too_old(image, command=True)),
    ):
        assert wanted in found
        assert bool(wanted) is bool(found)


def test_an_image_that_is_too_old_gets_a_remark() -> None:
    kubeflow: dict[str, Any] = yaml.safe_load(KUBEFLOW)
    [container] = kubeflow["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"][
        "containers"
    ]
    container |= {"image": "pytorch/pytorch:2.5.1", "command": ["torchrun", "t.py"]}
    assert "has torch" not in str(migrate_documents([kubeflow]))
    container["command"] = ["bash", "-c", "date; torchrun t.py"]
    assert "containers[pytorch].image', text='has torch 2.5" in str(migrate_documents([kubeflow]))
