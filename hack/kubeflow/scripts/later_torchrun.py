"""torchrun of the image's torch, with later improvements of its behavior after a loss.

PyTorchJobs shall be measured at their best. Torch 2.6 ignores `keep_alive_interval` and
`keep_alive_max_attempt` in the settings of the rendezvous, and a torchrun that receives SIGTERM
closes the rendezvous for all others.
"""

import inspect
import os
import signal
from datetime import timedelta
from typing import Any

from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.rendezvous import dynamic_rendezvous
from torch.distributed.run import main


def heed_keep_alive(configuration: str) -> None:
    """Sets the heartbeats of the rendezvous as in PET_RDZV_CONF, where torch does not."""
    from_backend = dynamic_rendezvous.DynamicRendezvousHandler.from_backend
    if "keep_alive_interval" in inspect.signature(from_backend).parameters:
        return
    options = dict(option.split("=") for option in configuration.split(","))
    wanted: dict[str, Any] = {
        "keep_alive_interval": timedelta(seconds=int(options["keep_alive_interval"])),
        "keep_alive_max_attempt": int(options["keep_alive_max_attempt"]),
    }
    settings = dynamic_rendezvous.RendezvousSettings
    dynamic_rendezvous.RendezvousSettings = lambda *values, **named: settings(
        *values, **(named | wanted)
    )


def leave_open() -> None:
    """Lets an agent that must stop leave the rendezvous open, where torch closes it."""
    shutdown = LocalElasticAgent._shutdown
    if "is_restart" in inspect.signature(shutdown).parameters:

        def stop(agent: Any, death_sig: Any = signal.SIGTERM, is_restart: bool = False) -> None:
            # The launcher closes it after a success or a failure.
            shutdown(agent, death_sig, is_restart=True)

        LocalElasticAgent._shutdown = stop


if __name__ == "__main__":
    heed_keep_alive(os.environ["PET_RDZV_CONF"])
    leave_open()
    main()
