"""What an agent and its workers say to each other over the pod's socket: the words, and the limits of a message."""

import socket
from typing import Any

LOCAL_SOCKET = "ELASTIC_PYTORCH_LOCAL_SOCKET"  # the variable that names the socket to workers
MAX_MESSAGE_BYTES = 64 << 10
MAX_NAME_CHARACTERS = 200
CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0x40000000)

# What a worker says.
COOPERATES = "cooperates"
PARKED = "parked"
LEFT = "left"
LOST_PEER = "lostPeer"
# What an agent says.
CHANGE = "change"
GO = "go"

Message = dict[str, Any]
