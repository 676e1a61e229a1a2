"""DTensors of which each rank trains a part, as with FSDP2, for a torch that has none on CPUs."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard


class ShardedWeights(nn.Module):
    """The weights of a module, flat and cut into one part for each rank."""

    def __init__(self, whole: nn.Module) -> None:
        super().__init__()
        self._whole = (whole,)  # its parameters are not this module's
        self._world, rank = dist.get_world_size(), dist.get_rank()
        flat = self._flat(whole.parameters())
        size = -(-len(flat) // self._world)
        self._mine = slice(min(rank * size, len(flat)), min((rank + 1) * size, len(flat)))
        self._mesh, self._length = init_device_mesh("cpu", (self._world,)), len(flat)
        self.weight = nn.Parameter(self._sharded(flat[self._mine]))

    def take_gradients(self) -> None:
        """Gives the parts the mean of all ranks' gradients, and forgets those of the whole."""
        gradients = [
            p.grad if p.grad is not None else torch.zeros_like(p)
            for p in self._whole[0].parameters()
        ]
        mean = self._flat(gradients) / self._world
        dist.all_reduce(mean)
        self.weight.grad = self._sharded(mean[self._mine])
        self._whole[0].zero_grad()

    def put_together(self) -> None:
        """Gives the whole module the weights of all parts."""
        flat = torch.zeros(self._length, dtype=self.weight.dtype)
        flat[self._mine] = self.weight.detach().to_local()
        dist.all_reduce(flat)
        with torch.no_grad():
            parameters = list(self._whole[0].parameters())
            for parameter, part in zip(
                parameters, flat.split([p.numel() for p in parameters]), strict=True
            ):
                parameter.copy_(part.view_as(parameter))

    @staticmethod
    def _flat(tensors: object) -> torch.Tensor:
        return torch.cat([tensor.detach().flatten() for tensor in tensors])

    def _sharded(self, part: torch.Tensor) -> DTensor:
        return DTensor.from_local(
            part.clone(),
            self._mesh,
            [Shard(0)],
            run_check=False,
            shape=(self._length,),
            stride=(1,),
        )
