"""Prepares the connection to the operator, for this package's agent and for torchrun's."""

import time
from collections.abc import Callable

from elastic_pytorch.agent.settings import Settings
from elastic_pytorch.operator_link.checkpoint_watch import watch_for_checkpoints
from elastic_pytorch.operator_link.client import OperatorClient
from elastic_pytorch.operator_link.http_connection import OperatorConnection
from elastic_pytorch.operator_link.store_port import StorePort
from elastic_pytorch.progress.receiver import ProgressReceiver


def prepare_client(
    settings: Settings,
    progress: ProgressReceiver,
    store_port: StorePort,
    *,
    local_world_size: int,
    on_news: Callable[[], None],
    on_dump: Callable[[], None],
    keeps_processes: Callable[[], bool] = lambda: False,
) -> OperatorClient:
    """Returns a client that reports the workers' progress and checkpoints to the operator; it is not started yet."""
    client = OperatorClient(
        OperatorConnection(settings.operator_host, settings.operator_port, settings.token_file, settings.operator_authorities),
        local_world_size=local_world_size,
        port=lambda: store_port.number,
        progress=lambda: progress.current().to_json(time.monotonic()),
        on_news=on_news,
        on_dump=on_dump,
        keeps_processes=keeps_processes,
    )
    progress.on_news = client.speak
    if settings.checkpoint_path is not None:
        watch_for_checkpoints(settings.checkpoint_path, client, progress)
    return client
