# shellcheck shell=bash disable=SC2034
# Pinned versions, names and paths. Sourced by every script in hack/.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
STATE=$ROOT/.cluster
# All checkouts of a machine share one cluster, whose files are beside no checkout.
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/elastic-pytorch-operator
# It is /shared on every node.
export SHARED=$CACHE/shared
DOCKERD_PID=$CACHE/dockerd.pid

CLUSTER=elastic-pytorch
CONTROL_PLANE=$CLUSTER-control-plane
WORKERS=("$CLUSTER-worker" "$CLUSTER-worker2" "$CLUSTER-worker3")
NODES=("$CONTROL_PLANE" "${WORKERS[@]}")

RELEASE=elastic-pytorch-operator
NAMESPACE=elastic-pytorch-system
OPERATOR_IMAGE=elastic-pytorch-operator:dev
AGENT_IMAGE=elastic-pytorch-agent:dev
WORKER_IMAGE=elastic-pytorch-worker:dev

KIND_VERSION=v0.33.0
HELM_VERSION=v3.22.0
KWOK_VERSION=v0.7.0
KUEUE_VERSION=v0.19.2
TRAINING_OPERATOR_VERSION=v1.9.3
SCHEDULER_PLUGINS_VERSION=v0.34.7
PROMETHEUS_VERSION=v0.316.0 # of its Go module: Prometheus 3.16
REGCTL_VERSION=v0.11.7
SYFT_VERSION=v1.57.1
COSIGN_VERSION=v3.1.3
ACTIONLINT_VERSION=v1.7.12
VALE_VERSION=v3.22.0 # newer ones, up to v3.26.0, need a commit of cascadia that not every module proxy has
PLAYWRIGHT_VERSION=1.65.2
AXE_VERSION=0.1.8 # of axe-playwright-python: axe-core 4.12.1
AXE_SHA256=fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8
SPHINX_VERSION=9.0.4
MYST_VERSION=5.2.0
FURO_VERSION=2025.12.19
MERMAID_VERSION=12.3.0
# kind's published node image, and the release that is built where it cannot be pulled: of one minor release.
KIND_NODE_IMAGE=kindest/node:v1.34.11@sha256:44e222ee2132dab25ff87301682f89eb82c7880ea3a1bf543bfe9708fd08d67d
KUBERNETES_VERSION=v1.34.4
KUBERNETES_MODULES=kubernetes # the folder in hack/offline that pins its Go modules
# Switched on beside the defaults, as in kind's configuration.
FEATURE_GATES={}
RUNTIME_CONFIG={}
# The cluster of `make test-gangs`: a release that can schedule gangs itself.
if [[ -n ${NATIVE_GANGS:-} ]]; then
    KIND_NODE_IMAGE=kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5
    KUBERNETES_VERSION=v1.37.2
    KUBERNETES_MODULES=kubernetes-v1.37
    FEATURE_GATES='{GenericWorkload: true}'
    RUNTIME_CONFIG='{scheduling.k8s.io/v1beta1: "true"}'
fi

# The label of all that `make clean` may remove from Docker.
LABEL=dev.elasticpytorch.built-by=make

# The user's own kubeconfig is neither read nor written.
export KUBECONFIG=$STATE/kubeconfig
export PATH=$STATE/bin:$PATH
# The classic builder needs no plugin, and takes a local base image without asking a registry.
export DOCKER_BUILDKIT=0

mkdir -p "$STATE/bin" "$STATE/logs" "$SHARED" "$CACHE/bin"
# Pods of any user write checkpoints there.
chmod 1777 "$SHARED"

# One hash over the contents of files and folders, and over plain words (word=…).
fingerprint() {
    local input
    for input in "$@"; do
        case $input in
        word=*) printf '%s\n' "$input" ;;
        *) (cd "$ROOT" && find "${input#"$ROOT"/}" -type f ! -path '*/__pycache__/*' ! -path '*.egg-info/*' -print0 |
            LC_ALL=C sort -z | xargs -0 -r sha256sum) ;;
        esac
    done | sha256sum | cut -c1-16
}

# The source folder of a Go module (MODULE@VERSION), fetched if necessary; fails if it cannot be.
module_folder() {
    (cd /tmp && timeout 120 go mod download "$1" && go list -m -f '{{.Dir}}' "$1")
}

source "$ROOT/hack/step.sh"
