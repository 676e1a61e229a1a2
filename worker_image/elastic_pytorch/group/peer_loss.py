"""Telling that an error is the loss of a peer, not the script's own."""

from elastic_pytorch.failures.peer_errors import is_peer_error


def is_peer_loss(error: BaseException) -> bool:
    """Whether an exception says that a collective has failed because a peer has gone away.

    Its causes count as well: a script may have wrapped it. NCCL's errors of a wrong set-up are no loss, although torch raises them as a
    DistBackendError, too: ncclInvalidUsage (two ranks on one GPU), ncclInvalidArgument, ncclUnhandledCudaError, and ncclInternalError and
    ncclSystemError (a full /dev/shm, no network interface) unless NCCL names a connection as the cause. To form the group again would
    raise them again. What it cannot tell, such as a rank that never comes, is a loss here: the operator knows whether a member was lost,
    and if not, counts it.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, RuntimeError) and is_peer_error(f"{type(seen).__name__}: {seen}"):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
