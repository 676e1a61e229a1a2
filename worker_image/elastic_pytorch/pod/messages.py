"""The messages between an agent and its workers over the pod's socket: their words and limits."""

import socket
from typing import Any

LOCAL_SOCKET = "ELASTIC_PYTORCH_LOCAL_SOCKET"  # the variable that names the socket to workers
MAX_MESSAGE_BYTES = 64 << 10
MAX_NAME_CHARACTERS = 200
CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0x40000000)

# From a worker.
COOPERATES = "cooperates"
PARKED = "parked"
LEFT = "left"
LOST_PEER = "lostPeer"
# From an agent.
CHANGE = "change"
GO = "go"

Message = dict[str, Any]
