"""The Trainer's arguments and environment in an elastic job."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from elastic_pytorch.lightning.callback import ElasticCallback
from elastic_pytorch.lightning.framework import TorchElasticEnvironment


def options(
    folder: str | os.PathLike[str] | None,
    *,
    batch_size: int | None = None,
    micro_batch_size: int | None = None,
    callbacks: Any = (),
    plugins: Any = (),
    name: str = "",
    every: int | None = None,
    keep: int = 2,
    keep_every_steps: int | None = None,
    flush_seconds: float = 5.0,
) -> dict[str, Any]:
    """Returns the Trainer's callbacks, and in a group also its plugins, devices and num_nodes.

    `batch_size` and `micro_batch_size`, which replaces accumulate_grad_batches, are those of an
    `ElasticSampler`; leave both out if the DataLoader has one. `callbacks` and `plugins` are the
    script's own, one or several. The other arguments are those of `State` and `State.Options`.
    """
    elastic = ElasticCallback(
        folder,
        batch_size=batch_size,
        micro_batch_size=micro_batch_size,
        name=name,
        every=every,
        keep=keep,
        keep_every_steps=keep_every_steps,
        flush_seconds=flush_seconds,
    )
    arguments: dict[str, Any] = {"callbacks": [elastic, *_several(callbacks)]}
    size = group_size(os.environ)
    plugins = _several(plugins)
    if size:
        plugins = [ElasticEnvironment(), *plugins]
    return arguments | size | ({"plugins": plugins} if plugins else {})


class ElasticEnvironment(TorchElasticEnvironment):
    """Ranks and a group of any size, from torchrun's variables, which the agent also sets."""

    def validate_settings(self, num_devices: int, num_nodes: int) -> None:
        if num_devices * num_nodes != self.world_size():
            raise ValueError(
                f"the Trainer was given devices={num_devices} and num_nodes={num_nodes}, "
                f"but the group has {self.world_size()} ranks: its size changes, "
                "so leave devices and num_nodes to elastic_pytorch.lightning.options"
            )


def group_size(environment: Mapping[str, str]) -> dict[str, int]:
    """Returns the Trainer's devices and num_nodes; nothing if this process is not in a group."""
    if "WORLD_SIZE" not in environment or "RANK" not in environment:
        return {}
    devices = int(environment.get("LOCAL_WORLD_SIZE", "1"))
    return {"devices": devices, "num_nodes": int(environment["WORLD_SIZE"]) // devices}


def _several(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, Iterable) else [given]
