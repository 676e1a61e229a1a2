"""Telling that an error is the loss of a peer, not the script's own."""

import re

# What gloo, NCCL and torch's store say when somebody else has gone away.
_SAYS_SO = re.compile(
    r"gloo.*(connection (closed|reset|refused)|read error|write error|timed out|connectfullmesh|socket closed)"
    r"|connection (closed|reset) by (remote )?peer"
    r"|nccl.*(remote error|unhandled system error|connection|aborted|timeout)"
    r"|broken pipe"
    r"|tcpstore|store.*(timeout|timed out)",
    re.IGNORECASE | re.DOTALL,
)
_KINDS = ("DistBackendError", "DistNetworkError", "DistStoreError")


def is_peer_loss(error: BaseException) -> bool:
    """Whether an exception says that a collective has failed because a peer has gone away.

    Its causes count as well: a script may have wrapped it.
    """
    seen: BaseException | None = error
    while seen is not None:
        if type(seen).__name__ in _KINDS or (isinstance(seen, RuntimeError) and _SAYS_SO.search(str(seen))):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
