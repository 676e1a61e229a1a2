"""The rows of both tables: their packages and tests."""

from typing import NamedTuple

# Of tests/worker_image, the tests that depend on torch's release, without variants of each other.
WHOLE_FOLDERS = (
    *("agent", "group", "memory", "state/values", "state_format", "torch_fixes", "training"),
)
MODULES = {
    "processes": ("group_formation",),
    "state": ("read_checkpoint", "restore", "state", "state_memory", "step_boundary"),
    "state/sharded": ("one_state", "regions", "sharded_checkpoint", "sharded_state"),
    "running_agent": (
        *("faults_on_backends", "group", "nccl_failures", "option_effects", "preload"),
        *("root_cause", "sharded_changes", "start", "state_changes", "torchrun_gives_up"),
    ),
}
AGENT_AND_LIBRARY = (
    *("-m", "not e2e and not gpu and not long"),
    *(f"tests/worker_image/{folder}" for folder in WHOLE_FOLDERS),
    *(
        f"tests/worker_image/{folder}/test_{module}.py"
        for folder, modules in MODULES.items()
        for module in modules
    ),
    "--ignore=tests/worker_image/training/test_random_changes.py",  # of local mode
    "--ignore=tests/worker_image/training/streams",
)
PYTHON = "3.11"
# The last patch of each release of torch, with a Python; the newest is the lock file's.
RELEASES = {
    "2.4.1": PYTHON,
    "2.5.1": PYTHON,
    "2.6.0": "3.10",
    "2.8.0": PYTHON,
    "2.10.0": "3.12",
    "2.13.0": "3.13",
}


class MatrixRow(NamedTuple):
    torch: str
    tests: tuple[str, ...] = AGENT_AND_LIBRARY
    packages: tuple[str, ...] = ()
    python: str = PYTHON


def torch_rows(newest: str) -> dict[str, MatrixRow]:
    return {
        release: MatrixRow(release, python=RELEASES.get(release, PYTHON))
        for release in (*RELEASES, newest)
    }


def framework_rows(newest: str) -> dict[str, MatrixRow]:
    def row(name: str, torch: str, *packages: str) -> MatrixRow:
        tests = ("-m", "not e2e and not gpu", f"tests/frameworks/{name}")
        return MatrixRow(torch, tests, packages)

    return {
        "lightning-oldest": row("lightning", "2.5.1", "lightning==2.5.0"),
        "lightning-newest": row("lightning", newest, "lightning==2.6.6"),
        # transformers 5.4 installs with Accelerate 1.1, but its Trainer passes arguments of 1.3.
        "transformers-oldest": row(
            "transformers", "2.4.1", "transformers==5.4.0", "accelerate==1.3.0"
        ),
        "transformers-newest": row(
            "transformers", newest, "transformers==5.23.0", "accelerate==1.15.0"
        ),
        "deepspeed-oldest": row("deepspeed", "2.8.0", "deepspeed==0.17.0"),
        "deepspeed-newest": row("deepspeed", newest, "deepspeed==0.19.8"),
        # Earlier releases have no loaders and checkpoint managers that a configuration could name.
        "torchtitan": row("torchtitan", newest, "torchtitan==0.3.0"),
    }
