"""Starts to talk to the operator."""

import threading

from elastic_pytorch.log import logger
from elastic_pytorch.operator_link.client import OperatorClient
from elastic_pytorch.operator_link.request_link import RequestLink
from elastic_pytorch.operator_link.stream_link import StreamLink


def start_link(client: OperatorClient) -> None:
    """Reports to the operator from now on, and takes in what it says, in a daemon thread.

    Args:
        client: what is reported, and where answers go.
    """
    threading.Thread(target=_talk, args=(client,), name="operator_link", daemon=True).start()


def _talk(client: OperatorClient) -> None:
    StreamLink(client).run()
    logger.info("the operator is older than this agent: heartbeats and polls have a connection each")
    RequestLink(client).run()
