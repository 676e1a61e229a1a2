"""A device whose copies are as slow as they can be, for tests on a CPU."""

import torch
from elastic_pytorch.memory.gpu_copies import Pairs


class GatedLane:
    """Copies half at once, and the other half when it is waited for or let go.

    So whatever writes to a tensor in between, without waiting, makes a copy of two halves that do
    not belong together.
    """

    def __init__(self) -> None:
        self.seconds = 0.0  # for which it says that the training has waited for each copy
        self.recording = False  # a graph
        self.behind = False  # steps behind the CPU: no copy is complete before it is waited for
        self.pending: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.begun = 0  # copies beside the training
        self.let_through = 0  # by an optimizer that was about to write

    def takes(self, tensor: torch.Tensor) -> bool:
        return tensor.dtype == torch.float32

    def catch_up(self) -> None:
        pass

    def copy_in_turn(self, pairs: Pairs) -> None:
        for target, source in pairs:
            target.copy_(source)

    def copy_beside(self, pairs: Pairs) -> None:
        assert not self.pending, "one copy at a time"
        self.begun += 1
        for target, source in pairs:
            half = target.numel() // 2
            target.view(-1)[:half].copy_(source.reshape(-1)[:half])
            self.pending.append((target.view(-1)[half:], source.view(-1)[half:]))

    def hold_writes(self) -> bool:
        if self.recording:
            return False
        self.let_through += bool(self.pending)
        self.let_go()
        return True

    def let_go(self) -> None:
        for target, source in self.pending:
            target.copy_(source)
        self.pending.clear()

    def done(self) -> bool:
        return not self.pending and not self.behind

    def wait(self) -> float:
        self.let_go()
        return self.seconds
