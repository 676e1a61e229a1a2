"""Distinguishes errors of torch, NCCL, gloo and the c10d store that the loss of a peer causes.

The agent and the operator have a copy each, because neither can import the other.
"""

import re

# Errors of a worker that has lost a peer, or waits for one in vain, in small letters.
_PEER = re.compile(
    r"connection (closed|reset) by (remote )?peer|dist(network|store|backend)error"
    r"|broken pipe|tcpstore"
)
# The same after a library's name. Only its first place counts: a text with a thousand names must
# not be searched as often.
_PEER_AFTER = {
    "gloo": re.compile(
        r"connection (closed|reset|refused)|read error|write error|timed out"
        r"|connectfullmesh|socket closed"
    ),
    "nccl": re.compile(r"remote error|remote process exited|connection|aborted|timeout|timed out"),
    "store": re.compile(r"timeout|timed out"),
}
# Torch prints these before it aborts a process because of a peer: ProcessGroupNCCL's watchdog and
# heartbeat monitor, and uncaught C++ exceptions of NCCL, gloo and the c10d store (torch 2.6 to
# 2.13). The texts of ProcessGroupNCCL2's watchdog are the library's of 2.15, not seen on a GPU.
_ABORTED = re.compile(
    r"watchdog caught collective operation timeout"
    r"|some nccl operations have failed or timed out"
    r"|nccl operation timed out|timeout watchdog (caught|detected)|nccl hit async error"
    r"|ncclremoteerror|remote process exited"
    r"|heartbeat monitor (will be|timed out)|heartbeatmonitor::"
    r"|instance of '(c10::dist(backend|network|store)error|gloo::\w+)'",
    re.IGNORECASE,
)
# The worker's own errors, although they come as a DistBackendError or by the watchdog: NCCL's names
# (nccl.h) in torch's exceptions (NCCLUtils.cpp), and the sentences of ncclGetErrorString, which
# ProcessGroupNCCL2 writes alone.
_OWN = re.compile(
    r"nccl(invalidusage|invalidargument|unhandledcudaerror)|\bcuda error: "
    r"|\binvalid (usage|argument) \(run with nccl_debug|\bunhandled cuda error\b",
    re.IGNORECASE,
)
# So are these two (a full /dev/shm, no network interface), unless NCCL's last error is a
# connection's.
_OWN_OR_NETWORK = re.compile(r"nccl(internal|system)error", re.IGNORECASE)
_NETWORK = re.compile(
    r"ncclremoteerror|remote process exited|connection (closed|reset|refused|timed out|abort)"
    r"|\b(connect|send|recv)\w{0,16} (to|from) \S{1,255} failed|socket (send|recv) failed"
    r"|no route to host|unreachable|broken pipe",
    re.IGNORECASE,
)


def is_peer_error(text: str) -> bool:
    """Whether an exception is only the consequence of what has happened to a peer."""
    words = text.lower()
    of_peer = _PEER.search(words) or any(
        after.search(words.partition(name)[2]) for name, after in _PEER_AFTER.items()
    )
    return bool(of_peer) and not _is_own(text)


def is_echo(*, exit_code: int, signal: str, exception: str, message: str, traceback: str) -> bool:
    """Whether the failure of a worker is only the consequence of what has happened to a peer."""
    if signal == "SIGABRT":
        words = f"{message}\n{traceback}"
        return is_peer_error(message) or (_ABORTED.search(words) is not None and not _is_own(words))
    return exit_code > 0 and not signal and is_peer_error(f"{exception}: {message}")


def _is_own(text: str) -> bool:
    return _OWN.search(text) is not None or (
        _OWN_OR_NETWORK.search(text) is not None and _NETWORK.search(text) is None
    )
