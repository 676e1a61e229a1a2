#!/usr/bin/env bash
# Builds the workers' image with object storage, client and server, and puts it on the nodes. What has not changed is left alone.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"
source "$ROOT/hack/step.sh"
source "$ROOT/hack/images/build.sh"

IMAGE=elastic-pytorch-worker-object-storage:dev
STORAGE_WHEELS=$STATE/wheels-object-storage
# obstore, and what moto's server needs.
PACKAGES='^(obstore|moto|boto3|botocore|s3transfer|jmespath|python-dateutil|six|responses|xmltodict|py-partiql-parser|pyyaml|requests|urllib3|certifi|idna'
PACKAGES+='|charset-normalizer|cryptography|cffi|pycparser|flask|flask-cors|werkzeug|jinja2|markupsafe|itsdangerous|blinker|click|typing-extensions)=='

main() {
    local inputs nodes
    inputs=$(fingerprint .dockerignore worker_image examples requirements-dev.lock hack/images/object-storage.sh hack/images/object-storage.Dockerfile)
    if ! is_built "$IMAGE" "$inputs"; then
        ensure_python
        step storage-wheels "Fetch the wheels of object storage" download_pinned_wheels "$STORAGE_WHEELS" "$PACKAGES"
        step storage-image "Build $IMAGE" docker build --file hack/images/object-storage.Dockerfile --build-arg "BASE=$WORKER_IMAGE" \
            --label "$LABEL" --label "$INPUTS_LABEL=$inputs" --tag "$IMAGE" .
    fi
    mapfile -t nodes < <(python3 hack/images/load_image.py --list-missing "$IMAGE" "${NODES[@]}")
    ((${#nodes[@]} == 0)) || step storage-load "Load $IMAGE to ${#nodes[@]} nodes" \
        python3 hack/images/load_image.py --whole "$IMAGE" "${nodes[@]}"
}

cd "$ROOT"
main
