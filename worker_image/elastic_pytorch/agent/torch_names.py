"""The undocumented names of torch that the agent and the library rely on, and their check.

A hook that torch has renamed would silently never be called.
"""

import dis
import importlib
import inspect
from collections.abc import Mapping, Sequence

from elastic_pytorch.agent.settings import SettingsError
from elastic_pytorch.log import logger

TESTED = "2.4 to 2.15"  # docs/evidence/compatibility.md

# By module. An attribute follows the class that has it, or whose methods set it.
AGENT: Mapping[str, Sequence[str]] = {
    "torch.distributed.elastic.agent.server.local_elastic_agent": (
        "LocalElasticAgent._assign_worker_ranks",
        "LocalElasticAgent._exit_barrier",
        "LocalElasticAgent._initialize_workers",
        "LocalElasticAgent._monitor_workers",
        "LocalElasticAgent._pcontext",
        "LocalElasticAgent._remaining_restarts",
        "LocalElasticAgent._rendezvous",
        "LocalElasticAgent._shutdown",
        "LocalElasticAgent._start_workers",
        "LocalElasticAgent._stop_workers",
    ),
    "torch.distributed.elastic.multiprocessing.api": (
        "MultiprocessContext._pc",
        "PContext.error_files",
        "PContext.stderrs",
        "SubprocessContext.subprocess_handlers",
        "_terminate_process_handler",
    ),
    "torch.distributed.run": ("config_from_args", "determine_local_world_size", "get_args_parser"),
}
LIBRARY: Mapping[str, Sequence[str]] = {
    "torch": ("Tensor._version", "_foreach_copy_"),
    "torch.distributed": ("ProcessGroup._device_types", "ProcessGroup._get_backend"),
    "torch.distributed.distributed_c10d": ("_world.group_count", "_world.pg_names"),
    "torch.utils.data._utils.worker": ("_worker_info",),
}


def check_torch() -> None:
    import torch  # noqa: PLC0415 - takes seconds

    if lacking := missing(AGENT):
        names = ", ".join(lacking)
        raise SettingsError(
            f"the agent runs with torch {TESTED}: torch {torch.__version__} lacks {names}"
        )
    if lacking := missing(LIBRARY):
        logger.warning(
            "torch %s lacks what the training library relies on: %s",
            torch.__version__,
            ", ".join(lacking),
        )


def missing(names: Mapping[str, Sequence[str]]) -> list[str]:
    """A missing module has its name alone."""
    found = []
    for module_name, attributes in names.items():
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            found.append(module_name)
            continue
        found += [f"{module_name}.{each}" for each in attributes if not _has(module, each)]
    return found


def _has(holder: object, path: str) -> bool:
    name, _, rest = path.partition(".")
    if hasattr(holder, name):
        return not rest or _has(getattr(holder, name), rest)
    return isinstance(holder, type) and not rest and _objects_have(holder, name)


def _objects_have(kind: type, name: str) -> bool:
    functions = [
        inspect.unwrap(value)
        for each in kind.__mro__
        for value in vars(each).values()
        if inspect.isfunction(value)
    ]
    instructions = (
        each
        for function in functions
        if inspect.isfunction(function)
        for each in dis.get_instructions(function)
    )
    return any(each.opname == "STORE_ATTR" and each.argval == name for each in instructions)
