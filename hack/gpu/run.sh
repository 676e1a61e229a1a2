#!/usr/bin/env bash
# Runs the measurements on a machine with a CUDA card, torch and Python, without a network.
#
#   ./run.sh                     eight minutes; the table comes last
#   PYTHON=/opt/python ./run.sh  with the Python that has torch
#   PROGRAM=gpu.commit_cost ./run.sh   the other program of the pack
set -euo pipefail

PYTHON=$(command -v "${PYTHON:-python3}")
cd "$(dirname "${BASH_SOURCE[0]}")"

"$PYTHON" -c 'import torch' || {
    echo "$PYTHON has no torch: name one that has, by PYTHON=/path/to/python" >&2
    exit 2
}
PYTHONPATH=$PWD exec "$PYTHON" -m "${PROGRAM:-gpu}" "$@"
