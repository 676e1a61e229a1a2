# shellcheck shell=bash
# Checks and heals the cluster, short of making it again. Sourced.

# A kubelet renews its lease every 10 s; a Ready condition alone stays true for 50 s after a node's end.
LEASE_SECONDS=25
# A node must have renewed its lease since it was woken.
WOKEN_AT=0

node_containers() {
    docker ps --all --quiet --filter "label=io.x-k8s.kind.cluster=$CLUSTER"
}

remove_node_containers() {
    node_containers | xargs -r docker rm --force --volumes
}

# Starts and unpauses nodes, and says so, as a user may have stopped them on purpose.
wake_nodes() {
    local node state
    while read -r node state; do
        case $state in
        running) ;;
        paused)
            say "  node $node is paused: going on with it"
            docker unpause "$node" >/dev/null
            WOKEN_AT=$(date +%s)
            ;;
        *)
            say "  node $node is $state: starting it"
            docker start "$node" >/dev/null
            WOKEN_AT=$(date +%s)
            ;;
        esac
    done < <(docker ps --all --filter "label=io.x-k8s.kind.cluster=$CLUSTER" --format '{{.Names}} {{.State}}')
}

# A killed test run may have left cordoned nodes.
uncordon_nodes() {
    local cordoned
    cordoned=$(kubectl get nodes --output jsonpath='{range .items[?(@.spec.unschedulable==true)]}{.metadata.name} {end}')
    # shellcheck disable=SC2086
    [[ -z $cordoned ]] || kubectl uncordon $cordoned
}

# A killed `make scale` leaves nodes without a kubelet (hack/scale/fake_nodes.py).
remove_fake_nodes() {
    kubectl delete nodes --selector elasticpytorch.dev/fake-node=true --request-timeout=5s || true
}

nodes_are_ready() {
    local now ready renewed
    now=$(date +%s)
    ready=$(kubectl get nodes "${NODES[@]}" --request-timeout=5s 2>/dev/null \
        --output jsonpath='{range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}') || return 1
    [[ $(grep -c '^True$' <<<"$ready") == "${#NODES[@]}" ]] || return 1
    while read -r renewed; do
        renewed=$(date --date "$renewed" +%s)
        ((renewed >= now - LEASE_SECONDS && renewed > WOKEN_AT)) || return 1
    done < <(kubectl -n kube-node-lease get leases "${NODES[@]}" --output jsonpath='{range .items[*]}{.spec.renewTime}{"\n"}{end}')
}

await_nodes() {
    remove_fake_nodes
    retry "$1" nodes_are_ready || {
        kubectl get nodes --output wide --request-timeout=5s || true
        return 1
    }
    uncordon_nodes
}

await_system_pods() {
    kubectl -n kube-system rollout status deployment/coredns --timeout="$1s"
    kubectl -n kube-system rollout status daemonset --timeout="$1s"
}

# Tests kill workers' nodes, and without DNS, new pods would not find the operator.
keep_dns_on_control_plane() {
    kubectl -n kube-system patch deployment coredns --patch \
        '{"spec": {"template": {"spec": {"nodeSelector": {"node-role.kubernetes.io/control-plane": ""}}}}}' >/dev/null
    kubectl -n kube-system rollout status deployment/coredns --timeout=120s >/dev/null
}
