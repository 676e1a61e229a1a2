#!/usr/bin/env bash
# Kubeflow's training-operator on the cluster, for PyTorchJobs.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
source "$ROOT/hack/images/build.sh"

NAME=training-operator
TITLE="the training-operator"
VERSION=$TRAINING_OPERATOR_VERSION
MODULE=github.com/kubeflow/training-operator
PROGRAMS=(manager=./cmd/training-operator.v1)
LDFLAGS=
MANIFESTS=manifests
FOLDER=hack/kubeflow
CONTROLLER_NAMESPACE=kubeflow
DEPLOYMENT=training-operator
SOURCE_VARIABLE=KUBEFLOW_SOURCE
GO_LEAST=1.23
BUILD_MINUTES=3
source "$ROOT/hack/images/manager.sh"

SECRET=training-operator-webhook-cert
CERTIFICATE_SECONDS=90

install_manifests() {
    apply_manifests
    # It writes its certificate into a Secret, and the kubelet takes a minute to show that to a pod that runs. A new pod has it at once.
    await_certificate
    kubectl --namespace "$CONTROLLER_NAMESPACE" delete pods --all --grace-period=1
    kubectl --namespace "$CONTROLLER_NAMESPACE" rollout status deployment --timeout=120s
}

await_certificate() {
    retry "$CERTIFICATE_SECONDS" has_certificate || {
        kubectl --namespace "$CONTROLLER_NAMESPACE" get pods
        kubectl --namespace "$CONTROLLER_NAMESPACE" logs --tail 20 "deployment/$DEPLOYMENT"
        return 1
    }
}

has_certificate() {
    kubectl --namespace "$CONTROLLER_NAMESPACE" get secret "$SECRET" --output 'jsonpath={.data.tls\.crt}' | grep -q .
}

# Its webhook goes first, as nothing answers it once the manager is gone.
remove_all() {
    kubectl delete validatingwebhookconfiguration validator.training-operator.kubeflow.org --ignore-not-found
    kubectl delete crd pytorchjobs.kubeflow.org --ignore-not-found --timeout=60s
    kubectl delete clusterrole,clusterrolebinding training-operator --ignore-not-found
    kubectl delete namespace "$CONTROLLER_NAMESPACE" --ignore-not-found --timeout=60s
}

manage "$@"
