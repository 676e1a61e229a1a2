#!/usr/bin/env bash
# Builds the image of examples/lightning on top of the worker's, and puts it on the nodes.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"
source "$ROOT/hack/images/build.sh"

# What the image lacks of Lightning's needs.
PACKAGES='^(lightning|pytorch-lightning|lightning-utilities|torchmetrics|tqdm|fsspec|packaging|pyyaml|typing-extensions)=='

cd "$ROOT"
build_on_workers lightning "$PACKAGES" examples/lightning/Dockerfile \
    --build-arg "LIGHTNING=--no-index --no-deps --ignore-installed /wheels/*.whl"
load_if_missing lightning-load elastic-pytorch-worker-lightning:dev --whole "${WORKERS[@]}"
