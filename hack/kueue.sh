#!/usr/bin/env bash
# Kueue on the cluster, for the tests of queues: built from its Go module, or from the source tree that KUEUE_SOURCE names.
# Usage: hack/kueue.sh [remove]
#
# Where it cannot be had, it says what is missing and ends with 3. While it is installed no pod can be created without its
# webhooks, but for those of kube-system and its own: `remove` takes all of it away again.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
source "$ROOT/hack/step.sh"
source "$ROOT/hack/images/build.sh"

UNAVAILABLE=3
IMAGE=elastic-pytorch-kueue:$KUEUE_VERSION
# The manager and the manifests of one release: with these nothing of its source is needed again.
BUILT=$CACHE/kueue-$KUEUE_VERSION
RENDERED=$STATE/kueue
KUEUE_NAMESPACE=kueue-system
KINDS=(workloads localqueues clusterqueues cohorts admissionchecks resourceflavors topologies workloadpriorityclasses)

install() {
    local inputs nodes
    one_at_a_time
    [[ -d $BUILT ]] || build
    inputs=$(fingerprint hack/kueue/Dockerfile "$BUILT/manager")
    is_built "$IMAGE" "$inputs" || step kueue-image "Build $IMAGE" build_manager_image "$inputs"
    nodes=$(python3 hack/images/load_image.py --list-missing "$IMAGE" "$CONTROL_PLANE")
    [[ -z $nodes ]] || step kueue-load "Load $IMAGE to $nodes" python3 hack/images/load_image.py --whole "$IMAGE" "$nodes"
    step kueue-install "Install Kueue $KUEUE_VERSION" install_manifests
    step kueue-ready "Wait for Kueue" await_answers 120
}

build() {
    local source=${KUEUE_SOURCE:-} found
    command -v go >/dev/null || unavailable "There is no Go to build it with: install Go 1.26 or newer."
    if [[ -z $source ]]; then
        source=$(module_folder) || unavailable "Its Go module cannot be fetched: name a source tree of $KUEUE_VERSION in KUEUE_SOURCE."
    elif ! found=$(sed -n 's/^RELEASE_VERSION=//p' "$source/Makefile" 2>/dev/null) || [[ $found != "$KUEUE_VERSION" ]]; then
        unavailable "KUEUE_SOURCE=$source is no source tree of $KUEUE_VERSION, but of ${found:-something else}."
    fi
    step kueue-build "Build Kueue $KUEUE_VERSION (about 5 minutes)" build_manager "$source"
}

unavailable() {
    say "Kueue $KUEUE_VERSION cannot be had here. $1"
    exit $UNAVAILABLE
}

module_folder() {
    (cd /tmp && timeout 120 go mod download -json "sigs.k8s.io/kueue@$KUEUE_VERSION" 2>/dev/null) | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' | grep .
}

build_manager() {
    local source=$1 partial=$BUILT.partial
    rm -rf "$partial"
    mkdir -p "$partial"
    cp -r "$source/config" "$partial/config"
    chmod -R u+w "$partial/config"
    cd "$source"
    CGO_ENABLED=0 go build -buildvcs=false -trimpath \
        -ldflags="-s -w -X sigs.k8s.io/kueue/pkg/version.GitVersion=$KUEUE_VERSION" -o "$partial/manager" ./cmd/kueue
    mv "$partial" "$BUILT"
}

build_manager_image() {
    docker build --file hack/kueue/Dockerfile --label "$LABEL" --label "$INPUTS_LABEL=$1" --tag "$IMAGE" "$BUILT"
}

install_manifests() {
    rm -rf "$RENDERED"
    mkdir -p "$RENDERED"
    cp -r "$BUILT/config" "$RENDERED"
    sed "s|@IMAGE@|$IMAGE|" hack/kueue/kustomization.yaml >"$RENDERED/kustomization.yaml"
    kubectl kustomize "$RENDERED" >"$RENDERED.yaml"
    # Some CRDs are too long for the annotation of a client-side apply.
    kubectl apply --server-side --force-conflicts --filename "$RENDERED.yaml"
    kubectl --namespace "$KUEUE_NAMESPACE" rollout status deployment --timeout=180s
}

# A manager that is ready may still lack its certificate: what counts is that its webhooks answer.
await_answers() {
    local deadline=$((SECONDS + $1))
    until kubectl create --dry-run=server --filename hack/kueue/probe.yaml; do
        if ((SECONDS > deadline)); then
            kubectl --namespace "$KUEUE_NAMESPACE" logs --tail 20 deployment/kueue-controller-manager
            return 1
        fi
        sleep 1
    done
}

# Its webhooks go first, as nothing answers them once the manager is gone; the manager goes last, as it takes its finalizers away.
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
    kubectl delete namespace "$KUEUE_NAMESPACE" --ignore-not-found --timeout=60s
}

# Objects whose finalizer is taken away by a manager that does not run.
release_all() {
    local name namespace
    while read -r name namespace; do
        kubectl patch "$1" "$name" ${namespace:+--namespace "$namespace"} --type merge --patch '{"metadata": {"finalizers": null}}'
    done < <(kubectl get "$1" --all-namespaces --output jsonpath='{range .items[*]}{.metadata.name} {.metadata.namespace}{"\n"}{end}')
}

cd "$ROOT"
case ${1:-install} in
install) install ;;
remove) step kueue-remove "Remove Kueue" remove_all ;;
*) fail "Usage: hack/kueue.sh [remove]" ;;
esac
