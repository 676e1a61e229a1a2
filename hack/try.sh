#!/usr/bin/env bash
# The demo without a cluster, without Docker and without root: each pod is a process of this machine. Its Python environment is small
# where it can be: with a torch that is there, or with one for CPUs.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
source "$ROOT/hack/step.sh"

ENVIRONMENT=$STATE/try
STAMP=$ENVIRONMENT/.made-from
TORCH="torch>=2.4"

main() {
    local python=.venv/bin/python wanted
    cd "$ROOT"
    if [[ ! -e .venv/.made-from ]]; then
        wanted=$(fingerprint requirements.lock hack/try.sh)
        if [[ $(cat "$STAMP" 2>/dev/null) != "$wanted" ]]; then
            one_at_a_time
            step try-venv "Make a virtual environment" make_environment
            step try-torch "Install torch, unless this Python has it (for CPUs: 200 MB, where its packages can be had; otherwise 2.6 GB)" install_torch
            step try-packages "Install what the operator needs" install_packages
            echo "$wanted" >"$STAMP"
        fi
        python=$ENVIRONMENT/bin/python
    fi
    PYTHONPATH=hack:operator:worker_image:plugin exec "$python" -m demo --local "$@"
}

make_environment() {
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11) and "This needs Python 3.11 or newer as python3.")'
    rm -rf "$ENVIRONMENT"
    python3 -m venv --system-site-packages "$ENVIRONMENT"
    "$ENVIRONMENT/bin/python" -m pip install --disable-pip-version-check uv
}

install_torch() {
    if "$ENVIRONMENT/bin/python" -c 'import torch, sys; sys.exit(tuple(map(int, torch.__version__.split(".")[:2])) < (2, 4))'; then
        echo "This Python has torch."
        return
    fi
    UV_HTTP_TIMEOUT=10 UV_HTTP_RETRIES=0 install --torch-backend cpu "$TORCH" && return
    echo "The packages of torch for CPUs cannot be had."
    install "$TORCH"
}

install_packages() {
    install --requirement requirements.lock numpy rich
}

install() {
    "$ENVIRONMENT/bin/uv" pip install --python "$ENVIRONMENT/bin/python" "$@"
}

main "$@"
