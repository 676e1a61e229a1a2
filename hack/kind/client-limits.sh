#!/usr/bin/env bash
# Raises the rate at which the test cluster's scheduler and controller manager may send requests, so that `make scale`
# measures the operator: by default a scheduler binds at most 50 pods a second.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"

COMPONENTS=(kube-scheduler kube-controller-manager)
QPS=1000
BURST=2000
START_SECONDS=120

main() {
    local component
    for component in "${COMPONENTS[@]}"; do
        has_limit "$component" || step "limits-$component" "Let $component ask the API server $QPS times a second" raise_limit "$component"
    done
}

# It asks the process, which follows the manifest.
has_limit() {
    docker exec "$CONTROL_PLANE" sh -c "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' '" | grep -q "$1 --kube-api-qps=$QPS "
}

raise_limit() {
    local manifest=/etc/kubernetes/manifests/$1.yaml
    # In one move, as the kubelet must never read half a manifest.
    docker exec "$CONTROL_PLANE" sh -c "sed -e '/- --kube-api-/d' \
        -e 's|^\( *\)- $1\$|&\n\1- --kube-api-qps=$QPS\n\1- --kube-api-burst=$BURST|' \
        $manifest >/etc/kubernetes/$1.new && mv /etc/kubernetes/$1.new $manifest"
    retry "$START_SECONDS" runs_with_limit "$1"
}

runs_with_limit() {
    has_limit "$1" && kubectl -n kube-system wait pod "$1-$CONTROL_PLANE" --for=condition=Ready --timeout=5s
}

main
