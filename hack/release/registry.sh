#!/usr/bin/env bash
# The reference registry of OCI, for the test of releases: from its Go module.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"
source "$ROOT/hack/step.sh"
source "$ROOT/hack/kind/tools.sh"

cd "$ROOT"
build_tool registry "github.com/distribution/distribution/v3/cmd/registry@$DISTRIBUTION_VERSION"
