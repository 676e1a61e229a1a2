"""The contents of a State as a tree, in which form they are committed and restored."""

from typing import Any

from elastic_pytorch.state.restore import Found
from elastic_pytorch.state.values import rng_state
from elastic_pytorch.state.values.per_rank import exchange_all
from elastic_pytorch.state.values.plain_values import PlainValues, placed
from elastic_pytorch.state.values.registered import Registered, own_copy, put_back

LAYOUT = 1


class Contents(Registered):
    def __init__(self, registered: dict[str, Any]) -> None:
        super().__init__(registered)
        self._step, self._rank, self._world = 0, 0, 1
        self._group: Any = None  # for CPU tensors
        self._shared_values: PlainValues | None = None

    def _exchange(self) -> None:
        exchange_all(self._objects.values(), self._group)
        # Waits for all ranks, so that a step in which one is lost is kept nowhere.
        if self._shared_values is not None:
            self._shared_values.take_over(self._values)

    def _states(self) -> dict[str, Any]:
        return {name: each.state_dict() for name, each in self._objects.items()}

    def _tree(self) -> dict[str, Any]:
        return self._tree_of(self._states())

    def _tree_of(self, states: dict[str, Any]) -> dict[str, Any]:
        return {
            "layout": LAYOUT,
            "step": self._step,
            "objects": states,
            "values": self._values,
            "random": rng_state.capture(self._rank, self._world),
        }

    def _load(self, found: Found) -> None:
        tree, found.tree = found.tree, None
        if tree.get("layout") != LAYOUT:
            raise RuntimeError(
                f"{found.where} is of another release's layout: {tree.get('layout')}"
            )
        self._put_back(tree["objects"], found)
        values = {name: value for name, value in tree["values"].items() if name in self._values}
        placed(
            {**self._values, **(values if found.mapped is None else own_copy(values))}, self._values
        )
        self._step = tree["step"]
        rng_state.put_back(tree["random"], self._rank, self._world, self._step)
        del tree
        if found.mapped is not None:
            found.mapped.release()

    def _put_back(self, states: dict[str, Any], found: Found) -> None:
        put_back(self._objects, states, found.where, found.mapped)
