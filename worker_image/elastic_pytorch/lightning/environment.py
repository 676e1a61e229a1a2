"""The group of ranks, as Lightning is told about it."""

from elastic_pytorch.lightning.framework import TorchElasticEnvironment


class ElasticEnvironment(TorchElasticEnvironment):
    """Ranks and the size of the group from torchrun's variables, which the agent sets, too: any size."""

    def validate_settings(self, num_devices: int, num_nodes: int) -> None:
        """Checks that the Trainer counts with the size that the group has.

        Raises:
            ValueError: it counts with another one.
        """
        if num_devices * num_nodes != self.world_size():
            raise ValueError(
                f"the Trainer was given devices={num_devices} and num_nodes={num_nodes}, but the group has {self.world_size()} ranks: "
                "its size changes, so leave devices and num_nodes to elastic_pytorch.lightning.options"
            )
