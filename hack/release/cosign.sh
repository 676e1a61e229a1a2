#!/usr/bin/env bash
# cosign, which signs a pushed release, from its Go module.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"
source "$ROOT/hack/kind/tools.sh"

build_tool cosign "github.com/sigstore/cosign/v3/cmd/cosign@$COSIGN_VERSION"
