#!/usr/bin/env bash
# Helm for the tests of the chart.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
source "$ROOT/hack/kind/tools.sh"

main() {
    if [[ -z $(command -v helm || command -v go) ]]; then
        echo "There is neither helm nor Go: tests of the chart will be skipped."
        return
    fi
    ensure_helm
}

cd "$ROOT"
main
