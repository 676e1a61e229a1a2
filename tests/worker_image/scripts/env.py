"""Writes down the variables that torchrun gives a worker, and sleeps or fails as told."""

import os
import resource
import sys
import time

from events import event

NAMES = [
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "ROLE_RANK",
    "ROLE_NAME",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_ERROR_FILE",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "OMP_NUM_THREADS",
    "ELASTIC_PYTORCH_UNIT",
    "ELASTIC_PYTORCH_UNITS",
    "ELASTIC_PYTORCH_UNIT_RANK",
]

event(
    "env",
    env={name: os.environ.get(name) for name in NAMES},
    argv=sys.argv,
    torch="torch" in sys.modules,
    files=resource.getrlimit(resource.RLIMIT_NOFILE),
)
if "fail" in sys.argv:
    raise ValueError(f"boom on rank {os.environ['RANK']}")
if "exit" not in sys.argv:
    time.sleep(600)
