#!/usr/bin/env bash
# A Prometheus, for the picture of the dashboard (hack/screens/dashboard_picture.py): out of Debian's package, unpacked but not installed.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
source "$ROOT/hack/step.sh"

PROMETHEUS=$STATE/prometheus

main() {
    [[ -x $PROMETHEUS/usr/bin/prometheus ]] && return
    step prometheus "Unpack Prometheus from Debian's archive" fetch
}

fetch() {
    local packages=$PROMETHEUS.packages
    rm -rf "$packages" "$PROMETHEUS.partial"
    mkdir -p "$packages" "$PROMETHEUS.partial"
    # On a new machine there are no lists of packages yet, and only root can fetch them.
    (cd "$packages" && { download || { apt-get update -qq && download; }; })
    dpkg -x "$packages"/prometheus_*.deb "$PROMETHEUS.partial"
    rm -rf "$packages"
    mv "$PROMETHEUS.partial" "$PROMETHEUS"
}

download() {
    apt-get download -qq prometheus
}

cd "$ROOT"
main
