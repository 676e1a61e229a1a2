#!/usr/bin/env bash
# Builds the image of examples/lightning on top of the worker's, and puts it on the nodes. What has not changed is left alone.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"
source "$ROOT/hack/step.sh"
source "$ROOT/hack/images/build.sh"

IMAGE=elastic-pytorch-worker-lightning:dev
LIGHTNING_WHEELS=$STATE/wheels-lightning
# What the image lacks of Lightning's needs, in the releases of the tests. Debian's Python there is 3.13.
PACKAGES='^(lightning|pytorch-lightning|lightning-utilities|torchmetrics|tqdm|fsspec|packaging|pyyaml|typing-extensions)=='

main() {
    local inputs nodes
    inputs=$(fingerprint .dockerignore worker_image examples requirements-dev.lock hack/images/lightning.sh)
    if ! is_built "$IMAGE" "$inputs"; then
        ensure_python
        step lightning-wheels "Fetch Lightning's wheels" fetch_lightning
        step lightning-image "Build $IMAGE" docker build --file examples/lightning/Dockerfile --build-arg "BASE=$WORKER_IMAGE" \
            --build-arg "LIGHTNING=--no-index --no-deps --ignore-installed /wheels/*.whl" --label "$LABEL" --label "$INPUTS_LABEL=$inputs" --tag "$IMAGE" .
    fi
    mapfile -t nodes < <(python3 hack/images/load_image.py --list-missing "$IMAGE" "${WORKERS[@]}")
    ((${#nodes[@]} == 0)) || step lightning-load "Load $IMAGE to ${#nodes[@]} nodes" \
        python3 hack/images/load_image.py --whole "$IMAGE" "${nodes[@]}"
}

# Containers may not be able to reach a package index where this machine can.
fetch_lightning() {
    local machine pins
    machine=$(uname -m)
    mapfile -t pins < <(grep -oE "$PACKAGES[^ ]+" requirements-dev.lock)
    rm -rf "$LIGHTNING_WHEELS"
    "$PYTHON" -m pip download --quiet --dest "$LIGHTNING_WHEELS" --no-deps --only-binary :all: --python-version 3.13 \
        --implementation cp --abi cp313 --abi abi3 --abi none --platform "manylinux2014_$machine" --platform "manylinux_2_17_$machine" \
        --platform "manylinux_2_28_$machine" "${pins[@]}"
}

cd "$ROOT"
main
