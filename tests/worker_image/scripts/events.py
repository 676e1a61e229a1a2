"""How a script of the tests tells what it does."""

import json
import os
import time


def event(what: str, *, alone: bool = False, **more: object) -> None:
    names = ("LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT", *(() if alone else ("RANK", "WORLD_SIZE")))
    line = {"what": what, "at": time.time(), "pid": os.getpid(), "worker": os.environ["WORKER"]}
    line |= {name: int(os.environ[name]) for name in names if name in os.environ}
    descriptor = os.open(os.environ["EVENTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, (json.dumps(line | more) + "\n").encode())
    os.close(descriptor)
