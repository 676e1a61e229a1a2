#!/usr/bin/env bash
# Builds the operator's, the agent's and the worker's image and puts them on the nodes. What has not changed is left alone.
# Usage: hack/images/images.sh [build], which leaves the nodes out
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"
source "$ROOT/hack/step.sh"
source "$ROOT/hack/kind/docker-engine.sh"
source "$ROOT/hack/images/build.sh"

main() {
    local operator_inputs agent_inputs worker_inputs
    operator_inputs=$(fingerprint .dockerignore Dockerfile LICENSE VERSION requirements.lock operator/elastic_pytorch_operator)
    agent_inputs=$(fingerprint .dockerignore LICENSE VERSION worker_image)
    worker_inputs=$(fingerprint .dockerignore worker_image examples)

    one_at_a_time
    ensure_docker
    if ! is_built "$OPERATOR_IMAGE" "$operator_inputs"; then
        fetch_wheels_if_changed
        ensure_base bookworm
        step operator-image "Build $OPERATOR_IMAGE" \
            build_image "$OPERATOR_IMAGE" . Dockerfile bookworm "$operator_inputs"
    fi
    if ! is_built "$AGENT_IMAGE" "$agent_inputs"; then
        ensure_base trixie
        step agent-image "Build $AGENT_IMAGE" \
            build_image "$AGENT_IMAGE" . worker_image/agent.Dockerfile trixie "$agent_inputs"
    fi
    if ! is_built "$WORKER_IMAGE" "$worker_inputs"; then
        ensure_base trixie
        step worker-image "Build $WORKER_IMAGE" \
            build_image "$WORKER_IMAGE" . worker_image/Dockerfile trixie "$worker_inputs"
    fi
    [[ ${1:-} != build ]] || return 0
    load_if_missing operator-load "$OPERATOR_IMAGE" "${NODES[@]}"
    # No worker pod runs on the control plane; a gigabyte spared.
    load_if_missing agent-load "$AGENT_IMAGE" "${WORKERS[@]}"
    load_if_missing worker-load "$WORKER_IMAGE" "${WORKERS[@]}"
}

cd "$ROOT"
main "$@"
