#!/usr/bin/env bash
# Makes the test cluster, or checks it, or heals it. Safe to run again at any time.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"
source "$ROOT/hack/kind/docker-engine.sh"
source "$ROOT/hack/kind/tools.sh"
source "$ROOT/hack/kind/health.sh"
source "$ROOT/hack/kind/audit.sh"
source "$ROOT/hack/offline/binaries.sh"
source "$ROOT/hack/images/build.sh"
source "$ROOT/hack/offline/node-image.sh"

HEAL_SECONDS=90
FINGERPRINT=$CACHE/cluster.fingerprint

# A change of these inputs makes the cluster again.
cluster_fingerprint() {
    fingerprint "$ROOT/hack/kind/kind.yaml" "$OFFLINE/pod-network.yaml" "word=$KIND_NODE_IMAGE" \
        "word=$(node_image_from_source)" "word=$FEATURE_GATES" "word=$RUNTIME_CONFIG"
}

main() {
    one_at_a_time
    ensure_docker
    if [[ -n $(node_containers) ]]; then
        if [[ $(cat "$FINGERPRINT" 2>/dev/null) != "$(cluster_fingerprint)" ]]; then
            say "What the cluster is made from has changed: making it again, with Kubernetes ${KUBERNETES_VERSION%.*}."
        elif heal; then
            set_up_control_plane
            say "Cluster $CLUSTER is ready."
            return
        else
            say "Cluster $CLUSTER did not become well again in $HEAL_SECONDS s: making it again."
        fi
        step delete-cluster "Delete the old cluster" delete_cluster
    fi
    create
    set_up_control_plane
    say "Cluster $CLUSTER is ready. KUBECONFIG=.cluster/kubeconfig .cluster/bin/kubectl get nodes"
}

heal() {
    ensure_tools
    wake_nodes
    # Each time, as another checkout may have made the cluster since.
    kind export kubeconfig --name "$CLUSTER" >/dev/null 2>&1 || return 1
    nodes_are_ready && uncordon_nodes && return
    # `step` would end the script, but a cluster that does not heal is made again.
    say "  ... Wait for the nodes (at most $HEAL_SECONDS s)"
    await_nodes "$HEAL_SECONDS" >"$STATE/logs/heal.log" 2>&1 && await_system_pods 60 >>"$STATE/logs/heal.log" 2>&1
}

create() {
    local image=$KIND_NODE_IMAGE
    has_published_node_image || step pull "Pull kind's node image, if it can be had here" try_pull
    has_published_node_image || image=$(node_image_from_source)
    announce "$image"
    # The longest build starts first.
    [[ $image == "$KIND_NODE_IMAGE" ]] || start_binaries
    start_tools
    ensure_base bookworm
    ensure_base trixie
    step_start images "Build the project's images" "$ROOT/hack/images/images.sh" build
    [[ $image == "$KIND_NODE_IMAGE" ]] || ensure_node_image_from_source "$image"
    ensure_tools
    # Starting on a busy machine, a cluster may miss the deadlines of kubeadm.
    step_wait images
    # Docker makes a folder of a missing file when it starts an old node.
    rm -rf "$CACHE/audit-policy.yaml"
    cp "$AUDIT_POLICY" "$CACHE/audit-policy.yaml"
    render "$ROOT/hack/kind/kind.yaml" >"$STATE/kind.yaml"
    step create-cluster "Create the cluster" create_cluster "$image"
    step nodes "Wait for the nodes" await_nodes 180
    step system-pods "Wait for DNS and the pod network" await_system_pods 120
    cluster_fingerprint >"$FINGERPRINT"
}

announce() {
    local image=$1
    docker image inspect "$image" >/dev/null 2>&1 && return
    if [[ -x $(built_binary kubernetes) ]]; then
        say "The node image is assembled again: a few minutes."
    else
        say "No image can be pulled here. So Kubernetes and Helm are built from their Go modules, and all images from Debian's packages."
        say "On two slow cores that takes about 25 minutes. It is kept: the next time takes minutes."
    fi
}

has_published_node_image() {
    docker image inspect "$KIND_NODE_IMAGE" >/dev/null 2>&1
}

# Succeeds either way. A registry that cannot be reached fails at once or never; a pull that moves gets its time.
try_pull() {
    local reply=$STATE/logs/pull-reply.log deadline=$((SECONDS + 20)) pull
    timeout 900 docker pull "$KIND_NODE_IMAGE" >"$reply" 2>&1 &
    pull=$!
    while kill -0 $pull 2>/dev/null; do
        if ((SECONDS > deadline)) && ! grep -q 'Pulling fs layer\|Already exists' "$reply"; then
            kill $pull
            break
        fi
        sleep 0.2
    done
    wait $pull || true
    cat "$reply"
}

render() {
    local without_cni=false
    [[ $image == "$KIND_NODE_IMAGE" ]] || without_cni=true
    sed -e "s|@SHARED@|$SHARED|" \
        -e "s|@CACHE@|$CACHE|" \
        -e "s|@AUDIT_POLICY@|$(audit_policy_on_node)|" \
        -e "s|@FEATURE_GATES@|$FEATURE_GATES|" \
        -e "s|@RUNTIME_CONFIG@|$RUNTIME_CONFIG|" \
        -e "s|@DISABLE_DEFAULT_CNI@|$without_cni|" \
        -e "s|@CONTROL_PLANE@|$CONTROL_PLANE|" \
        -e "s|@COMPONENTS_IMAGE@|docker.io/elastic-pytorch/kubernetes-components:$KUBERNETES_VERSION|" "$1"
}

create_cluster() {
    local image=$1
    kind create cluster --name "$CLUSTER" --image "$image" --config "$STATE/kind.yaml" --wait 0s
    [[ $image == "$KIND_NODE_IMAGE" ]] || render "$OFFLINE/pod-network.yaml" | kubectl apply --filename -
}

set_up_control_plane() {
    # Otherwise it would starve while many workers import torch.
    docker update --cpu-shares 8192 "$CONTROL_PLANE" >/dev/null
    keep_dns_on_control_plane
    ensure_audit
}

delete_cluster() {
    rm -f "$FINGERPRINT" "$KUBECONFIG"
    remove_node_containers
}

main
