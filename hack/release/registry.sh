#!/usr/bin/env bash
# OCI's reference registry, for the tests of releases, from its Go module without clouds' storage, which is most of it.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"
source "$ROOT/hack/kind/tools.sh"

SOURCE=$ROOT/hack/release/registry

main() {
    local built
    built=$CACHE/registry-$(fingerprint "$SOURCE")
    if [[ ! -x $built ]]; then
        require_go registry
        step registry "Build a registry from its Go module" build_registry "$built"
    fi
    ln -sf "$built" "$STATE/bin/registry"
}

build_registry() {
    cd "$SOURCE"
    CGO_ENABLED=0 go build -buildvcs=false -mod=readonly -trimpath "$GO_WITHOUT_DEBUGGER" -ldflags="-s -w" -o "$1.partial" .
    mv "$1.partial" "$1"
}

main
