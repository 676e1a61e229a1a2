#!/usr/bin/env bash
# The operator on the cluster, from the chart and the images of this checkout.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

CHART=$ROOT/charts/elastic-pytorch-operator

main() {
    local image_id wanted
    one_at_a_time
    image_id=$(docker image inspect --format '{{.Id}}' "$OPERATOR_IMAGE")
    wanted=$(fingerprint "$CHART" "word=$image_id" hack/install.sh)
    is_installed "$wanted" && return
    step install "Install the operator from its chart" install_release "$image_id" "$wanted"
}

# The release remembers in its description what it was made from; the deployment says whether it still stands.
is_installed() {
    local status
    status=$(helm status "$RELEASE" --namespace "$NAMESPACE" 2>/dev/null) || return 1
    grep -q "^STATUS: deployed" <<<"$status" && grep -q "^DESCRIPTION: $1$" <<<"$status" &&
        kubectl --namespace "$NAMESPACE" rollout status deployment --timeout=2s >/dev/null 2>&1
}

# Tests read the metrics through the API server's proxy, which takes tokens away: here they are plain.
# The image's tag stays the same when its content changes: the annotation makes that a change of the pod.
install_release() {
    # Nothing in the chart may need more than the strictest of the Pod Security Standards allows.
    kubectl get namespace "$NAMESPACE" >/dev/null 2>&1 || kubectl create namespace "$NAMESPACE"
    kubectl label --overwrite namespace "$NAMESPACE" pod-security.kubernetes.io/enforce=restricted
    helm upgrade --install "$RELEASE" "$CHART" --namespace "$NAMESPACE" --description "$2" \
        --set global.imageRegistry=docker.io/library --set image.pullPolicy=Never \
        --set image.repository="${OPERATOR_IMAGE%:*}" --set image.tag="${OPERATOR_IMAGE#*:}" \
        --set agentImage.repository="${AGENT_IMAGE%:*}" --set agentImage.tag="${AGENT_IMAGE#*:}" \
        --set metrics.perJob=true --set metrics.secure=false \
        --set-string "podAnnotations.elasticpytorch\.dev/image-id=$1" --wait --timeout 3m || {
        kubectl --namespace "$NAMESPACE" get pods --output wide
        kubectl --namespace "$NAMESPACE" logs --tail 20 --selector "app.kubernetes.io/name=$RELEASE" --ignore-errors
        return 1
    }
}

main
