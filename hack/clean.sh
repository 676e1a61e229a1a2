#!/usr/bin/env bash
# Removes all that the Makefile's targets made, but neither Debian's packages nor Go's own caches.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
source "$ROOT/hack/kind/docker-engine.sh"
source "$ROOT/hack/kind/health.sh"

main() {
    local daemon
    daemon=$(cat "$DOCKERD_PID" 2>/dev/null || true)
    if docker_answers; then
        step delete-cluster "Delete the cluster" delete_cluster
        [[ -n ${KEEP_CACHE:-} ]] || step delete-images "Delete the images" delete_images
        # A dockerd that was started for the cluster goes with it, unless other containers run.
        if [[ -n $daemon && -z $(docker ps --quiet) ]]; then
            step stop-dockerd "Stop the dockerd that was started here" stop_dockerd "$daemon"
        fi
    fi
    rm -rf "$STATE" "$SHARED"
    if [[ -z ${KEEP_CACHE:-} ]]; then
        rm -rf "$CACHE" .venv .mypy_cache hack/*/.mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
        find . -path ./.git -prune -o -type d \( -name __pycache__ -o -name '*.egg-info' \) -prune -exec rm -rf {} +
    fi
}

delete_cluster() {
    remove_node_containers
    # All of kind's clusters share its network: it goes with the last of them.
    docker network rm kind || true
}

delete_images() {
    docker image prune --all --force --filter "label=$LABEL"
}

stop_dockerd() {
    [[ $(cat "/proc/$1/comm" 2>/dev/null) == dockerd ]] || return 0
    kill "$1"
    while kill -0 "$1" 2>/dev/null; do sleep 0.2; done
}

cd "$ROOT"
main
