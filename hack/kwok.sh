#!/usr/bin/env bash
# kwok, which stands in for the kubelets of fake nodes, and its stages of nodes and pods, from its Go module.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
source "$ROOT/hack/kind/tools.sh"

STAGES=$CACHE/kwok-stages-$(fingerprint "$ROOT/hack/kwok.sh" "word=$KWOK_VERSION").yaml

main() {
    build_tool kwok "sigs.k8s.io/kwok/cmd/kwok@$KWOK_VERSION"
    if [[ ! -f $STAGES ]]; then
        require_go kwok
        step kwok-stages "Take kwok's stages from its Go module" collect_stages
    fi
    ln -sf "$STAGES" "$STATE/kwok-stages.yaml"
}

collect_stages() {
    local folder stage
    folder=$(module_folder "sigs.k8s.io/kwok@$KWOK_VERSION")/kustomize/stage
    {
        echo "apiVersion: config.kwok.x-k8s.io/v1alpha1"
        echo "kind: KwokConfiguration"
        # By default, kwok has four requests for pods in flight, for all nodes together.
        echo "options: {podPlayStageParallelism: 32}"
        for stage in node/fast/node-initialize pod/fast/pod-ready pod/fast/pod-delete; do
            echo ---
            cat "$folder/$stage.yaml"
        done
    } >"$STAGES.partial"
    mv "$STAGES.partial" "$STAGES"
}

cd "$ROOT"
main
