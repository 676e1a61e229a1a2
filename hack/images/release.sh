#!/usr/bin/env bash
# The operator's image of an earlier release, on the nodes: what a test upgrades from. Usage: hack/images/release.sh VERSION
#
# tests/e2e/releases/VERSION.tar.xz holds the code and the chart of that release, which are all that an upgrade is about: the
# libraries are those of today, so that nothing has to be fetched.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"
source "$ROOT/hack/step.sh"
source "$ROOT/hack/kind/docker-engine.sh"
source "$ROOT/hack/images/build.sh"

VERSION=$1
IMAGE=${OPERATOR_IMAGE%:*}:$VERSION
ARCHIVE=tests/e2e/releases/$VERSION.tar.xz
DOCKERFILE=tests/e2e/releases/Dockerfile
FOLDER=$STATE/releases/$VERSION

main() {
    local inputs
    inputs=$(fingerprint .dockerignore "$DOCKERFILE" LICENSE requirements.lock "$ARCHIVE")
    one_at_a_time
    ensure_docker
    unpack
    if ! is_built "$IMAGE" "$inputs"; then
        ensure_base bookworm
        cp .dockerignore "$DOCKERFILE" LICENSE requirements.lock "$FOLDER"
        # With the same wheels as the image of today it has the same base.
        fetch_wheels_if_changed
        mkdir -p "$FOLDER/.cluster" && cp -r "$WHEELS" "$FOLDER/.cluster/wheels"
        step release-image "Build $IMAGE" build_image "$IMAGE" "$FOLDER" Dockerfile bookworm "$inputs"
    fi
    load_if_missing release-load "$IMAGE" "${NODES[@]}"
}

unpack() {
    rm -rf "$FOLDER"
    mkdir -p "$FOLDER"
    tar --extract --xz --file "$ARCHIVE" --directory "$FOLDER"
}

cd "$ROOT"
main
