"""The pods that serve the c10d stores of a job, one of each rendezvous."""

from elastic_pytorch_operator.model.actions import DeletePod
from elastic_pytorch_operator.model.observed import Observed


def delete_stores(observed: Observed, *, keep: int, why: str) -> list[DeletePod]:
    """Deletes the stores of all rendezvous but the one numbered `keep`; 0: of all."""
    return [
        DeletePod(store.name, store.uid, why, force=observed.on_removed_node(store))
        for store in observed.stores
        if store.rendezvous != keep and not store.deleting
    ]
