"""Records what a script finds in its process before it does anything but import torch."""

import atexit
import decimal
import faulthandler
import gc
import json
import locale
import logging
import mimetypes
import multiprocessing
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
import urllib.request
import warnings
from pathlib import Path

before = {
    "temporary folder": tempfile.tempdir,
    "exit handlers": "none left over" if atexit._ncallbacks() < 20 else atexit._ncallbacks(),
    "start method": multiprocessing.get_start_method(allow_none=True),
    "mimetypes": mimetypes.inited,
    "opener": urllib.request._opener,
}
import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.distributed  # noqa: E402

# What modules that the agent imports early leave behind, and the agent's own lines.
IMPORTED = ("torch", "strobelight", "c10d", "elastic_pytorch")
found = before | {
    "warnings": sorted(repr(entry) for entry in warnings.filters if "sympy" not in repr(entry)),
    "signals": {
        str(number): str(signal.getsignal(number)).split(" at 0x")[0]
        for number in sorted(signal.valid_signals())
    },
    "blocked signals": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "socket timeout": socket.getdefaulttimeout(),
    "locale": locale.setlocale(locale.LC_ALL),
    "root logger": [logging.root.level, len(logging.root.handlers), logging.root.manager.disable],
    "logging": [
        logging.raiseExceptions,
        logging.getLoggerClass().__name__,
        logging.lastResort is not None,
    ],
    "loggers": sorted(
        name
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger)
        and (logger.handlers or logger.level)
        and not name.startswith(IMPORTED)
    ),
    "path": sys.path,
    "arguments": sys.argv[2:],
    "recursion": sys.getrecursionlimit(),
    "switch interval": sys.getswitchinterval(),
    "hooks": [
        getattr(sys, name) is getattr(sys, f"__{name}__")
        for name in ("displayhook", "unraisablehook")
    ],
    "thread hook": threading.excepthook is threading.__excepthook__,
    "tracing": [sys.gettrace(), sys.getprofile()],
    "finders": [getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path],
    "threads": [thread.name for thread in threading.enumerate()],
    "process": [
        multiprocessing.current_process().name,
        multiprocessing.parent_process(),
        multiprocessing.active_children(),
    ],
    "collector": [gc.isenabled(), gc.get_threshold(), gc.callbacks],
    "faulthandler": faulthandler.is_enabled(),
    "decimal": str(decimal.getcontext()),
    "umask": os.umask(0o022),
    "folder": str(Path.cwd()),
    "session": os.getsid(0) == os.getpid(),
    "niceness": os.nice(0),
    "cores": sorted(os.sched_getaffinity(0)),
    "limits": {
        name: resource.getrlimit(getattr(resource, name))
        for name in dir(resource)
        if name.startswith("RLIMIT_")
    },
    "streams": [[stream.encoding, stream.errors] for stream in (sys.stdin, sys.stdout, sys.stderr)],
    "numpy": [np.geterr(), np.get_printoptions()],
    "torch": [
        str(torch.get_default_dtype()),
        str(torch.get_default_device()) if hasattr(torch, "get_default_device") else "",
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        torch.get_num_interop_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.benchmark,
        torch.multiprocessing.get_sharing_strategy(),
        torch.distributed.is_initialized(),
        torch.cuda.is_initialized(),
    ],
}
Path(sys.argv[1]).write_text(json.dumps(found, default=str))
