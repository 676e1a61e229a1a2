#!/usr/bin/env bash
# Runs the measurements on a machine with a CUDA card, torch and Python, without a network.
#
#   ./run.sh                     eight minutes; the table comes last
#   PYTHON=/opt/python ./run.sh  with the Python that has torch
#   PROGRAM=gpu.commit_cost ./run.sh   the other program of the pack
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PYTHON=$(command -v "${PYTHON:-python3}")
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
cd "$WORK"

"$PYTHON" -c 'import torch' || {
    echo "$PYTHON has no torch: name one that has, by PYTHON=/path/to/python" >&2
    exit 2
}
"$PYTHON" -m venv --without-pip --system-site-packages "$WORK/venv"
SITE=$("$WORK/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# A virtual environment does not pass its own packages on to the environments that it makes.
"$PYTHON" -c 'import sys; print("\n".join(path for path in sys.path if path.endswith("-packages")))' >"$SITE/torch_of_this_machine.pth"
for wheel in "$HERE"/wheels/*.whl; do
    "$PYTHON" -m zipfile -e "$wheel" "$SITE"
done
export PYTHONPATH=$HERE:$HERE/hack
"$WORK/venv/bin/python" -m "${PROGRAM:-gpu}" "$@"
