#!/usr/bin/env bash
# promtool, for the tests of the chart's alerts: from PATH, or built from Prometheus' Go module.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
source "$ROOT/hack/kind/tools.sh"

MODULE=github.com/prometheus/prometheus/cmd/promtool@$PROMETHEUS_VERSION

main() {
    local built
    place_tool promtool "^promtool, version 3\." --version && return
    built=$(built_tool promtool "$MODULE")
    [[ -x $built ]] || step promtool "Build promtool ${MODULE##*@} from its Go module (about 4 minutes)" build_or_explain "$built"
    if [[ -x $built ]]; then
        ln -sf "$built" "$STATE/bin/promtool"
    else
        tail -1 "$STATE/logs/promtool.log"
    fi
}

build_or_explain() {
    if ! command -v go >/dev/null; then
        echo "There is neither promtool nor Go: the tests of the alerts will be skipped."
        return
    fi
    GOGC=400 go_install "$MODULE" "$1" || true
    if [[ ! -x $1 ]]; then
        echo "promtool cannot be built: it takes Go 1.26.7 or newer, and its Go module. The tests of the alerts will be skipped."
    fi
}

cd "$ROOT"
main
