#!/usr/bin/env bash
# A Prometheus, for the picture of the dashboard (hack/screens/dashboard_picture.py): out of Debian's package, unpacked but not installed.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
source "$ROOT/hack/step.sh"
source "$ROOT/hack/debian-packages.sh"

PROMETHEUS=$STATE/prometheus

main() {
    [[ -x $PROMETHEUS/usr/bin/prometheus ]] && return
    step prometheus "Unpack Prometheus from Debian's archive" unpack_debian "$PROMETHEUS" prometheus
}

cd "$ROOT"
main
