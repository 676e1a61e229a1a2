#!/usr/bin/env bash
# Builds the three images for a registry, with Docker or else buildah. Its arguments are the build's.
# PUSH=1     pushes them, with the credentials of `docker login` or `buildah login`
# TAG=1.2    instead of the file VERSION
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"
source "$ROOT/hack/images/build.sh"

declare -A FILES=([operator]=Dockerfile [agent]=worker_image/agent.Dockerfile [worker]=worker_image/Dockerfile)

main() {
    local tool name image
    check_registry "${REGISTRY:-}"
    tool=$(builder)
    TAG=${TAG:-$(<VERSION)}
    for name in operator agent worker; do
        image=$REGISTRY/elastic-pytorch-$name:$TAG
        step "$name-image" "Build $image with $tool" "$tool" build --file "${FILES[$name]}" --build-arg "VERSION=$TAG" --tag "$image" "$@" .
        [[ -z ${PUSH:-} ]] || step "$name-push" "Push $image" "$tool" push "$image"
    done
}

builder() {
    if docker info >/dev/null 2>&1; then
        echo docker
    elif command -v buildah >/dev/null; then
        echo buildah
    else
        fail "No Docker answers, and there is no buildah: start or install one of them."
    fi
}

cd "$ROOT"
# Unset, each tool uses its own default, unlike `make images` for the test cluster.
unset DOCKER_BUILDKIT
main "$@"
