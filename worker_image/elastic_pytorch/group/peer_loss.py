"""Distinguishes the loss of a peer from the script's own errors."""

from elastic_pytorch.failures.peer_errors import is_peer_error


def is_peer_loss(error: BaseException) -> bool:
    """Whether an exception, or one of its causes, says that a collective has lost a peer.

    NCCL's errors of a wrong set-up (see `peer_errors`) are none, because the next group would raise
    them again. An unclear case, such as a rank that never comes, is one: the operator knows whether
    a member was lost, and if not, counts the failure.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, RuntimeError) and is_peer_error(f"{type(seen).__name__}: {seen}"):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
