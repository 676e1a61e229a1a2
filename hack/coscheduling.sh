#!/usr/bin/env bash
# Coscheduling on the cluster, for the tests of gangs: the scheduler plugins as a second scheduler with their controller.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
source "$ROOT/hack/images/build.sh"

NAME=coscheduling
TITLE=coscheduling
VERSION=$SCHEDULER_PLUGINS_VERSION
MODULE=sigs.k8s.io/scheduler-plugins
PROGRAMS=(manager=./cmd/controller kube-scheduler=./cmd/scheduler)
LDFLAGS=
# Not every module proxy has v0.34.7 of this one.
REPLACEMENT=k8s.io/csi-translation-lib=k8s.io/csi-translation-lib@v0.34.4
MANIFESTS=manifests
FOLDER=hack/coscheduling
CONTROLLER_NAMESPACE=scheduler-plugins
DEPLOYMENT=scheduler-plugins-scheduler
SOURCE_VARIABLE=SCHEDULER_PLUGINS_SOURCE
GO_LEAST=1.24
BUILD_MINUTES=10
source "$ROOT/hack/images/manager.sh"

install_manifests() {
    # The controller needs both kinds.
    kubectl apply --filename "$BUILT/manifests/coscheduling/crd.yaml" --filename "$BUILT/manifests/capacityscheduling/crd.yaml"
    helm upgrade --install "$NAME" "$BUILT/manifests/install/charts/as-a-second-scheduler" --namespace "$CONTROLLER_NAMESPACE" \
        --create-namespace --values "$FOLDER/values.yaml" --set "scheduler.image=$IMAGE,controller.image=$IMAGE" --wait --timeout 3m
}

remove_all() {
    helm uninstall "$NAME" --namespace "$CONTROLLER_NAMESPACE" --ignore-not-found --wait --timeout 1m
    kubectl delete crd podgroups.scheduling.x-k8s.io elasticquotas.scheduling.x-k8s.io --ignore-not-found --timeout=60s
    kubectl delete namespace "$CONTROLLER_NAMESPACE" --ignore-not-found --timeout=60s
}

manage "$@"
