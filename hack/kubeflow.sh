#!/usr/bin/env bash
# Kubeflow's training-operator on the cluster, for PyTorchJobs: built from its Go module, or from the source tree that KUBEFLOW_SOURCE names.
# Usage: hack/kubeflow.sh [build|remove]. `build` needs no cluster.
#
# Where it cannot be had, it says what is missing and ends with 3.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
source "$ROOT/hack/step.sh"
source "$ROOT/hack/images/build.sh"

UNAVAILABLE=3
MODULE=github.com/kubeflow/training-operator
IMAGE=elastic-pytorch-training-operator:$TRAINING_OPERATOR_VERSION
# The manager and the manifests of one release: with these nothing of its source is needed again.
BUILT=$CACHE/training-operator-$TRAINING_OPERATOR_VERSION
RENDERED=$STATE/kubeflow
KUBEFLOW_NAMESPACE=kubeflow
SECRET=training-operator-webhook-cert
CERTIFICATE_SECONDS=90

install() {
    local inputs nodes
    one_at_a_time
    build
    inputs=$(fingerprint hack/kubeflow/Dockerfile "$BUILT/manager")
    is_built "$IMAGE" "$inputs" || step kubeflow-image "Build $IMAGE" build_manager_image "$inputs"
    nodes=$(python3 hack/images/load_image.py --list-missing "$IMAGE" "$CONTROL_PLANE")
    [[ -z $nodes ]] || step kubeflow-load "Load $IMAGE to $nodes" python3 hack/images/load_image.py --whole "$IMAGE" "$nodes"
    step kubeflow-install "Install the training-operator $TRAINING_OPERATOR_VERSION" install_manifests
    step kubeflow-ready "Wait for the training-operator" await_answers 120
}

build() {
    local source=${KUBEFLOW_SOURCE:-}
    [[ ! -d $BUILT ]] || return 0
    command -v go >/dev/null || unavailable "There is no Go to build it with: install Go 1.23 or newer."
    if [[ -z $source ]]; then
        source=$(module_folder) || unavailable "Its Go module cannot be fetched: name a source tree of $TRAINING_OPERATOR_VERSION in KUBEFLOW_SOURCE."
    elif ! grep -qs "^module $MODULE\$" "$source/go.mod"; then
        unavailable "KUBEFLOW_SOURCE=$source is no source tree of $MODULE."
    fi
    step kubeflow-build "Build the training-operator $TRAINING_OPERATOR_VERSION (about 3 minutes)" build_manager "$source"
}

unavailable() {
    say "The training-operator $TRAINING_OPERATOR_VERSION cannot be had here. $1"
    exit $UNAVAILABLE
}

module_folder() {
    (cd /tmp && timeout 120 go mod download -json "$MODULE@$TRAINING_OPERATOR_VERSION" 2>/dev/null) | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' | grep .
}

build_manager() {
    local source=$1 partial=$BUILT.partial
    rm -rf "$partial"
    mkdir -p "$partial"
    cp -r "$source/manifests" "$partial/manifests"
    chmod -R u+w "$partial/manifests"
    cd "$source"
    CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags="-s -w" -o "$partial/manager" ./cmd/training-operator.v1
    mv "$partial" "$BUILT"
}

build_manager_image() {
    docker build --file hack/kubeflow/Dockerfile --label "$LABEL" --label "$INPUTS_LABEL=$1" --tag "$IMAGE" "$BUILT"
}

install_manifests() {
    rm -rf "$RENDERED"
    mkdir -p "$RENDERED"
    cp -r "$BUILT/manifests" "$RENDERED"
    sed "s|@IMAGE@|$IMAGE|" hack/kubeflow/kustomization.yaml >"$RENDERED/kustomization.yaml"
    kubectl kustomize "$RENDERED" >"$RENDERED.yaml"
    # The CRD is too long for the annotation of a client-side apply.
    kubectl apply --server-side --force-conflicts --filename "$RENDERED.yaml"
    # It writes its certificate into a Secret, and the kubelet takes a minute to show that to a pod that runs. A new pod has it at once.
    await_certificate
    kubectl --namespace "$KUBEFLOW_NAMESPACE" delete pods --all --grace-period=1
    kubectl --namespace "$KUBEFLOW_NAMESPACE" rollout status deployment --timeout=120s
}

await_certificate() {
    local deadline=$((SECONDS + CERTIFICATE_SECONDS))
    until kubectl --namespace "$KUBEFLOW_NAMESPACE" get secret "$SECRET" --output 'jsonpath={.data.tls\.crt}' | grep -q .; do
        if ((SECONDS > deadline)); then
            kubectl --namespace "$KUBEFLOW_NAMESPACE" get pods
            kubectl --namespace "$KUBEFLOW_NAMESPACE" logs --tail 20 deployment/training-operator
            return 1
        fi
        sleep 0.5
    done
}

# A manager that is ready may still be unknown to kube-proxy: what counts is that its webhook answers.
await_answers() {
    local deadline=$((SECONDS + $1))
    until kubectl create --dry-run=server --filename hack/kubeflow/probe.yaml; do
        if ((SECONDS > deadline)); then
            kubectl --namespace "$KUBEFLOW_NAMESPACE" logs --tail 20 deployment/training-operator
            return 1
        fi
        sleep 1
    done
}

# Its webhook goes first, as nothing answers it once the manager is gone.
remove_all() {
    kubectl delete validatingwebhookconfiguration validator.training-operator.kubeflow.org --ignore-not-found
    kubectl delete crd pytorchjobs.kubeflow.org --ignore-not-found --timeout=60s
    kubectl delete clusterrole,clusterrolebinding training-operator --ignore-not-found
    kubectl delete namespace "$KUBEFLOW_NAMESPACE" --ignore-not-found --timeout=60s
}

cd "$ROOT"
case ${1:-install} in
install) install ;;
build) build ;;
remove) step kubeflow-remove "Remove the training-operator" remove_all ;;
*) fail "Usage: hack/kubeflow.sh [build|remove]" ;;
esac
