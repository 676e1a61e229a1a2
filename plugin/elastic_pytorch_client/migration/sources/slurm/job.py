"""The ElasticPyTorchJob for a batch script."""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_client.migration import shell_text
from elastic_pytorch_client.migration.job_metadata import LONGEST_NAME, set_fields
from elastic_pytorch_client.migration.job_size import group_size
from elastic_pytorch_client.migration.launch import PYTHON
from elastic_pytorch_client.migration.process_variables import SET_BY_AGENT, listed
from elastic_pytorch_client.migration.remarks import CannotMigrate, Remarks
from elastic_pytorch_client.migration.sources.slurm.allocation import (
    Allocation,
    read_allocation,
    seconds_of,
)
from elastic_pytorch_client.migration.sources.slurm.commands import (
    VARIABLE,
    Start,
    Surroundings,
    read_commands,
    split_commands,
)
from elastic_pytorch_client.migration.sources.slurm.script import read_script
from elastic_pytorch_client.migration.sources.training_pods import (
    TrainingPods,
    make_job,
    processes_of,
    read_training_pods,
)

Manifest = dict[str, Any]

# RFC 2606 reserves `.invalid`: the API server accepts the name, and no registry has it.
PLACEHOLDER = "fill-in.invalid/image-of-the-training"
READ = {
    *("nodes", "ntasks", "ntasks-per-node", "gpus", "gpus-per-node", "gpus-per-task", "gres"),
    *("cpus-per-task", "cpus-per-gpu", "mem", "mem-per-cpu", "mem-per-gpu", "time", "job-name"),
    *("chdir", "container-image"),
}
# Pods have them anyway, or never.
WITHOUT_REMARK = {
    *("export", "get-user-env", "no-requeue", "requeue", "parsable", "verbose", "quiet", "hint"),
    "threads-per-core",
}
DEVICES = "CUDA_VISIBLE_DEVICES"
DROPPED = {
    "account": "for quota, give the job Kueue's label kueue.x-k8s.io/queue-name",
    "partition": "choose nodes by a nodeSelector or tolerations in spec.template",
    "qos": "set priorityClassName in spec.template",
    "constraint": "choose nodes by a nodeSelector or an affinity in spec.template",
    "output": "`kubectl epj logs` shows what the workers print",
    "error": "`kubectl epj logs` shows what the workers print",
    "container-mounts": "mount volumes in spec.template",
    "dependency": "create the job once the other one is complete",
    "exclusive": "ask for all of a node's GPUs or CPUs in the container's resources",
    "signal": "pods get SIGTERM, and SIGKILL after terminationGracePeriodSeconds of spec.template",
}
TIME = (
    "becomes activeDeadlineSeconds, after which the job fails. Unlike in Slurm, the time in "
    "which it waits for workers counts, too"
)
NO_COUNTERPART = "it has no counterpart"
SET_BY_ENV = re.compile(r"\benv .*")
IMAGE = re.compile(r"--container-image[= ](\S+)")
IN_A_REGISTRY = re.compile(r"\w[\w./:@#-]*\Z")  # others are files
TASKS = re.compile(r"--ntasks-per-node[= ](\d+)")
# Arrays and parts of values: only the batch script's shell works them out.
WORKED_OUT = re.compile(r"\$\{(?:[#!](\w+)[^}]*|(\w+)[^}\w][^}]*)\}")
ARGUMENT = re.compile(r"\$(?:[1-9]|\{[1-9]\d*\})")
ALWAYS_SET = {"HOME", "PWD"}
QUOTED = re.compile(r"'[^']*'")
OTHER_CONTAINERS = re.compile(r"\b(?:singularity|apptainer|enroot|docker|podman)\b")
FOLDERS = re.compile(r"(?<![\w./$}):-])/(?!dev/|bin/|usr/|opt/|etc/|tmp\b|proc/)[\w.-]+")


def migrate_batch_script(text: str, file_name: str, remarks: Remarks) -> list[Manifest]:
    script = read_script(text)
    _refuse(text, script.options)
    allocation = read_allocation(script.options, remarks)
    title = script.options.get("job-name") or PurePosixPath(file_name).name.split(".")[0]
    start, around = read_commands(
        script.commands, {**allocation.variables(), "SLURM_JOB_NAME": title}, remarks
    )
    pods = _pods(start, around, allocation, script.options, remarks)
    sizes = group_size("--nodes", allocation.nodes, pods.options, remarks, allocation.least)
    limit = seconds_of(script.options["time"]) if "time" in script.options else None
    job = make_job(
        {"name": _name(title, remarks)},
        pods,
        sizes,
        _processes(start, allocation, pods, remarks),
        {"activeDeadlineSeconds": limit},
        {"failurePolicy": set_fields({"maxFailures": pods.max_restarts})},
    )
    if limit is not None:
        remarks.add("--time", TIME)
    for option in [
        *script.options,
        *(["container-mounts"] if "--container-mounts" in start.before else []),
    ]:
        if option not in READ | WITHOUT_REMARK:
            remarks.drop(f"--{option}", DROPPED.get(option, NO_COUNTERPART))
    return [job]


def _refuse(text: str, options: Mapping[str, str]) -> None:
    if "array" in options or "SLURM_ARRAY_TASK_ID" in text:
        raise CannotMigrate(
            "--array",
            "is a sweep of trainings that do not know each other: write a job for each of them",
        )
    if re.search(r"^#SBATCH\s+(?:hetjob|packjob)", text, re.MULTILINE):
        raise CannotMigrate(
            "#SBATCH hetjob",
            "asks for nodes of several kinds, and workers are alike: write a job for one of them",
        )


def _name(title: str, remarks: Remarks) -> str:
    name = (
        re.sub(r"[^a-z0-9]+", "-", title.lower()).lstrip("-0123456789")[:LONGEST_NAME].rstrip("-")
        or "training"
    )
    if name != title:
        remarks.add("--job-name", f"{title} becomes {name}: pods and hosts are named after it")
    return name


def _pods(
    start: Start,
    around: Surroundings,
    allocation: Allocation,
    options: Mapping[str, str],
    remarks: Remarks,
) -> TrainingPods:
    path, image = f"line {start.line}", _image(start, options, remarks)
    if set_by_env := SET_BY_ENV.search(start.before):
        raise CannotMigrate(path, f"{set_by_env[0].strip()}: export the variables before srun")
    environment = dict(around.environment)
    if environment.pop(DEVICES, None) is not None:
        remarks.drop(DEVICES, "a pod sees the GPUs of its resources.limits")
    if needed := _needed_without_value(start.text):
        has = "has" if len(needed) == 1 else "have"
        text = (
            f"{listed(needed)} {has} no value here, for the batch script does not run: write it "
            "into the command"
        )
        raise CannotMigrate(path, text)
    folder = around.folder or options.get("chdir", "")
    container = {
        "name": names.TRAINING_CONTAINER,
        "image": image,
        "command": ["bash", "-c", start.text],
        "workingDir": folder or None,
        "resources": allocation.resources(),
        "env": [{"name": name, "value": value} for name, value in environment.items()],
    }
    template, own = {"spec": {"containers": [set_fields(container)]}}, Remarks()
    try:
        pods = read_training_pods(path, template, own, (), names.TRAINING_CONTAINER, path)
    except CannotMigrate as error:
        raise CannotMigrate(path, error.remark.text) from error
    for remark in own.found:
        if remark.path != f"{path}.env":  # that the group's are set is no news here
            remarks.add(path, remark.text)
    launch = pods.launch
    read = {
        found["name"] or found["plain"]
        for found in VARIABLE.finditer(" ".join((*launch.command, *launch.args)))
    }
    read -= SET_BY_AGENT - {"NODE_RANK"} | {"GROUP_RANK", "local_rank"} | ALWAYS_SET
    if unknown := sorted(({*around.unknown} - SET_BY_AGENT | read) - set(environment)):
        remarks.add(
            path,
            f"{', '.join(unknown)}: set in the container's env, for the batch script does not run",
        )
    used = " ".join((*launch.command, *launch.args, *environment.values(), folder))
    if folders := sorted(set(FOLDERS.findall(used))):
        remarks.add(
            path,
            f"{', '.join(folders)}: mount volumes there, in spec.template, unless the image has "
            "them",
        )
    return pods


def _image(start: Start, options: Mapping[str, str], remarks: Remarks) -> str:
    """The image that Pyxis names, if it is in a registry."""
    found = IMAGE.search(start.before)
    image = found[1].strip("'\"") if found else options.get("container-image", "")
    if IN_A_REGISTRY.match(image) and not image.endswith(".sqsh"):
        return image.removeprefix("docker://").replace("#", "/", 1)
    if container := OTHER_CONTAINERS.search(start.before):
        remarks.add(f"line {start.line}", f"{container[0]} is dropped: pods are containers")
    by = (
        f"the registry's image that {image} was made of"
        if image
        else "an image that has Python, torch, the modules and the script"
    )
    remarks.add("image", f"{PLACEHOLDER} is to be replaced: by {by}")
    return PLACEHOLDER


def _needed_without_value(text: str) -> list[str]:
    """What a command needs and only the batch script knows."""
    found = [
        part[0]
        for part in WORKED_OUT.finditer(text)
        if not re.search(rf"\b{part[1] or part[2]}\+?=", text)
    ]
    found += [argument[0] for argument in ARGUMENT.finditer(QUOTED.sub("", text))]
    found += [
        word
        for word in _started(text)
        if (name := VARIABLE.match(word))
        and name["name"] not in ALWAYS_SET
        and name["plain"] not in ALWAYS_SET
    ]
    return list(dict.fromkeys(found))


def _started(text: str) -> list[str]:
    """The words that name programs, scripts and perhaps torchrun's options."""
    found = shell_text.words_of_torchrun(text)
    for part in split_commands(text):
        words = part.replace('"', "").split()
        while words and (words[0] in ("exec", "time", "then", "do") or re.match(r"\w+=", words[0])):
            words.pop(0)
        found += words[:1]
        if words and PYTHON.match(PurePosixPath(words[0]).name):
            found += [word for word in words[1:] if not word.startswith("-") or word == "-c"][:1]
    return found


def _processes(
    start: Start, allocation: Allocation, pods: TrainingPods, remarks: Remarks
) -> Manifest:
    path = f"line {start.line}"
    own = TASKS.search(start.before)
    tasks = int(own[1]) if own else allocation.tasks
    if not start.by_srun and allocation.nodes > 1:
        remarks.add(
            path,
            f"without srun, it ran on the first node only. Now it runs on all {allocation.nodes}",
        )
    if pods.launch.by != "python" or not start.by_srun:
        if start.by_srun and tasks > 1 and pods.launch.by == "torchrun":
            text = (
                f"srun started torchrun {tasks} times on each node. Now the agent starts "
                "nproc-per-node processes, once"
            )
            remarks.add(path, text)
        return processes_of(pods, remarks)
    remarks.add(
        path,
        "in a script that reads SLURM_PROCID, SLURM_LOCALID or SLURM_NTASKS, read RANK, "
        "LOCAL_RANK and WORLD_SIZE",
    )
    return {"nprocPerNode": None if tasks == max(1, pods.accelerators) else tasks}
