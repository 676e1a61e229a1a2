#!/usr/bin/env bash
# Kueue on the cluster, for the tests of queues.
#
# While it is installed, no pod can be created without its webhooks, except in kube-system and its own namespace, until
# `remove`.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
source "$ROOT/hack/images/build.sh"

NAME=kueue
TITLE=Kueue
VERSION=$KUEUE_VERSION
MODULE=sigs.k8s.io/kueue
PROGRAMS=(manager=./cmd/kueue)
LDFLAGS="-X sigs.k8s.io/kueue/pkg/version.GitVersion=$KUEUE_VERSION"
MANIFESTS=config
FOLDER=hack/kueue
CONTROLLER_NAMESPACE=kueue-system
DEPLOYMENT=kueue-controller-manager
SOURCE_VARIABLE=KUEUE_SOURCE
GO_LEAST=1.26
BUILD_MINUTES=5
source "$ROOT/hack/images/manager.sh"

KINDS=(workloads localqueues clusterqueues cohorts admissionchecks resourceflavors topologies workloadpriorityclasses)

check_source() {
    local found
    if ! found=$(sed -n 's/^RELEASE_VERSION=//p' "$1/Makefile" 2>/dev/null) || [[ $found != "$VERSION" ]]; then
        unavailable "KUEUE_SOURCE=$1 is no source tree of $VERSION, but of ${found:-something else}."
    fi
}

install_manifests() {
    apply_manifests
    kubectl --namespace "$CONTROLLER_NAMESPACE" rollout status deployment --timeout=180s
}

# Its webhooks go first, as only the manager answers them; the manager goes last, as it removes its finalizers.
remove_all() {
    local kind mine=(--selector app.kubernetes.io/name=kueue --ignore-not-found)
    kubectl delete mutatingwebhookconfigurations,validatingwebhookconfigurations "${mine[@]}"
    for kind in "${KINDS[@]}"; do
        kubectl get crd "$kind.kueue.x-k8s.io" >/dev/null 2>&1 || continue
        kubectl delete "$kind.kueue.x-k8s.io" --all --all-namespaces --timeout=30s || release_all "$kind.kueue.x-k8s.io"
    done
    kubectl delete crd "${mine[@]}" --timeout=60s
    kubectl delete clusterroles,clusterrolebindings "${mine[@]}"
    kubectl --namespace kube-system delete rolebindings "${mine[@]}"
    kubectl delete namespace "$CONTROLLER_NAMESPACE" --ignore-not-found --timeout=60s
}

# Removes the finalizers that a stopped manager would remove.
release_all() {
    local name namespace
    while read -r name namespace; do
        kubectl patch "$1" "$name" ${namespace:+--namespace "$namespace"} --type merge --patch '{"metadata": {"finalizers": null}}'
    done < <(kubectl get "$1" --all-namespaces --output jsonpath='{range .items[*]}{.metadata.name} {.metadata.namespace}{"\n"}{end}')
}

manage "$@"
