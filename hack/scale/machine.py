"""Who uses the machine: processor seconds of programs from /proc, and what servers export to Prometheus."""

import os
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PROGRAMS = {
    "kube-apiserver": "API server",
    "etcd": "etcd",
    "kube-scheduler": "scheduler",
    "kube-controller-manager": "controller manager",
    "kwok": "kwok",
    "kubelet": "kubelets, containerd, kube-proxy",
    "kube-proxy": "kubelets, containerd, kube-proxy",
    "containerd": "kubelets, containerd, kube-proxy",
    "scale.generator": "load generator",
    "scale": "load generator",  # the program that commands it
    "elastic_pytorch_operator": "operator",
}
OTHERS = "kernel and others"
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="([^"]*)"')


def program_of(arguments: list[str]) -> str | None:
    """Returns what a process is called in the tables, by its command line; None: it is none of the cluster's."""
    if not arguments:
        return None
    module = arguments[arguments.index("-m") + 1] if "-m" in arguments[:-1] else ""
    return PROGRAMS.get(module or arguments[0].rpartition("/")[2])


def processor_seconds(proc: Path = Path("/proc")) -> dict[str, float]:
    """Returns the processor seconds of each program since the machine's start, as far as its processes still run."""
    found: defaultdict[str, float] = defaultdict(float)
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            arguments = (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if program := program_of(arguments):
            found[program] += (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND
    busy = [int(field) for field in (proc / "stat").read_text().splitlines()[0].split()[1:8]]
    found["all"] = (sum(busy) - busy[3] - busy[4]) / TICKS_PER_SECOND  # neither idle nor waiting for disks
    return found


def cores(before: Mapping[str, float], after: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Returns how many cores each program used, the busiest first, and what is left of all that was used."""
    used = {name: (value - before.get(name, 0.0)) / seconds for name, value in after.items() if name != "all"}
    used[OTHERS] = (after["all"] - before["all"]) / seconds - sum(used.values())
    return {name: round(value, 2) for name, value in sorted(used.items(), key=lambda entry: -entry[1]) if value >= 0.005}


def samples(text: str, name: str, label: str = "") -> dict[str, float]:
    """Returns the samples of a metric, summed up by the value of a label; by an empty string without one."""
    found: defaultdict[str, float] = defaultdict(float)
    for line in text.splitlines():
        if line.startswith(name) and (sample := SAMPLE.match(line)) and sample[1] == name:
            found[dict(LABEL.findall(sample[2] or "")).get(label, "")] += float(sample[3])
    return found


def rates(before: Mapping[str, float], after: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Returns how fast each counter grew, a second, the fastest first; those that stood still are left out."""
    grown = {name: round((value - before.get(name, 0.0)) / seconds, 1) for name, value in after.items()}
    return {name: value for name, value in sorted(grown.items(), key=lambda entry: -entry[1]) if value > 0}
