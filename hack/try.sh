#!/usr/bin/env bash
# The demo's faults in local mode, without a cluster, Docker and root, in a small Python environment if possible, with the
# present torch, or one for CPUs. EXAMPLE=plain takes the script without the training library.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
source "$ROOT/hack/small-venv.sh"

TORCH="torch>=2.4"

main() {
    cd "$ROOT"
    ensure_python
    if [[ $PYTHON == "$SMALL_VENV"/* && ! -e $SMALL_VENV/.has-torch ]]; then
        one_at_a_time
        step try-torch "Install torch, unless this Python has it (for CPUs: 200 MB, where its packages can be had; otherwise 2.6 GB)" install_torch
        touch "$SMALL_VENV/.has-torch"
    fi
    local manifest=examples/char-lm/job-elastic.yaml
    [[ ${EXAMPLE:-} != plain ]] || manifest=examples/char-lm/job.yaml
    PYTHONPATH=operator:worker_image:plugin:local exec "$PYTHON" -m elastic_pytorch_local "$manifest" --page --faults "$@" \
        -- --steps 100000 --text docs/use
}

install_torch() {
    install_small numpy
    if "$PYTHON" -c 'import torch, sys; sys.exit(tuple(map(int, torch.__version__.split(".")[:2])) < (2, 4))'; then
        echo "This Python has torch."
        return
    fi
    UV_HTTP_TIMEOUT=10 UV_HTTP_RETRIES=0 install_small --torch-backend cpu "$TORCH" && return
    echo "The packages of torch for CPUs cannot be had."
    install_small "$TORCH"
}

main "$@"
