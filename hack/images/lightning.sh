#!/usr/bin/env bash
# Builds the image of examples/lightning on top of the worker's, and puts it on the nodes. What has not changed is left alone.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"
source "$ROOT/hack/step.sh"
source "$ROOT/hack/images/build.sh"

IMAGE=elastic-pytorch-worker-lightning:dev
LIGHTNING_WHEELS=$STATE/wheels-lightning
# What the image lacks of Lightning's needs.
PACKAGES='^(lightning|pytorch-lightning|lightning-utilities|torchmetrics|tqdm|fsspec|packaging|pyyaml|typing-extensions)=='

main() {
    local inputs nodes
    inputs=$(fingerprint .dockerignore worker_image examples requirements-dev.lock hack/images/lightning.sh)
    if ! is_built "$IMAGE" "$inputs"; then
        ensure_python
        step lightning-wheels "Fetch Lightning's wheels" download_pinned_wheels "$LIGHTNING_WHEELS" "$PACKAGES"
        step lightning-image "Build $IMAGE" docker build --file examples/lightning/Dockerfile --build-arg "BASE=$WORKER_IMAGE" \
            --build-arg "LIGHTNING=--no-index --no-deps --ignore-installed /wheels/*.whl" --label "$LABEL" --label "$INPUTS_LABEL=$inputs" --tag "$IMAGE" .
    fi
    mapfile -t nodes < <(python3 hack/images/load_image.py --list-missing "$IMAGE" "${WORKERS[@]}")
    ((${#nodes[@]} == 0)) || step lightning-load "Load $IMAGE to ${#nodes[@]} nodes" \
        python3 hack/images/load_image.py --whole "$IMAGE" "${nodes[@]}"
}

cd "$ROOT"
main
