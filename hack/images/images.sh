#!/usr/bin/env bash
# Builds the changed images of the operator, the agent and the worker, and loads them onto the nodes.
# Usage: hack/images/images.sh [build], which leaves the nodes out
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"
source "$ROOT/hack/kind/docker-engine.sh"
source "$ROOT/hack/images/build.sh"

# build_if_changed NAME IMAGE DOCKERFILE SUITE INPUT...
build_if_changed() {
    local name=$1 image=$2 file=$3 suite=$4 inputs
    shift 4
    inputs=$(fingerprint .dockerignore "$@")
    is_built "$image" "$inputs" && return
    [[ $name != operator ]] || fetch_wheels_if_changed
    ensure_base "$suite"
    step "$name-image" "Build $image" build_image "$image" . "$file" "$suite" "$inputs"
}

main() {
    one_at_a_time
    ensure_docker
    build_if_changed operator "$OPERATOR_IMAGE" Dockerfile bookworm \
        Dockerfile LICENSE VERSION requirements.lock operator/elastic_pytorch_operator
    build_if_changed agent "$AGENT_IMAGE" worker_image/agent.Dockerfile trixie LICENSE VERSION worker_image
    build_if_changed worker "$WORKER_IMAGE" worker_image/Dockerfile trixie worker_image examples
    [[ ${1:-} != build ]] || return 0
    load_if_missing operator-load "$OPERATOR_IMAGE" "${NODES[@]}"
    # No worker pod runs on the control plane, which saves a gigabyte.
    load_if_missing agent-load "$AGENT_IMAGE" "${WORKERS[@]}"
    load_if_missing worker-load "$WORKER_IMAGE" "${WORKERS[@]}"
}

cd "$ROOT"
main "$@"
