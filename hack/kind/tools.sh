# shellcheck shell=bash
# kind, kubectl and helm for .cluster/bin: those on PATH if they fit, else built from Go modules. Sourced.

KIND_MODULE=sigs.k8s.io/kind@$KIND_VERSION
HELM_MODULE=helm.sh/helm/v3/cmd/helm@$HELM_VERSION
# `-ldflags=-w` omits it in the end, so it need not be compiled. Builds share packages only with the same option.
GO_WITHOUT_DEBUGGER=-gcflags=all=-dwarf=false
GO_HINT="No suitable %s on PATH and no Go to build it with. Install %s, or Go 1.25 or newer."

ensure_tools() {
    local minor
    minor=$(cut -d. -f2 <<<"$KUBERNETES_VERSION")
    place_kind || build_tool kind "$KIND_MODULE"
    ensure_helm
    # Kubernetes requires one within a minor release of the cluster's. `hack/offline` builds it if there is none.
    place_tool kubectl "gitVersion: v1\.($((minor - 1))|$minor|$((minor + 1)))\." version --client --output yaml ||
        ensure_kubernetes_binary
}

# Starts the builds of ensure_tools beside other steps; ensure_tools waits for them.
start_tools() {
    place_kind || start_tool kind "$KIND_MODULE"
    place_helm || start_tool helm "$HELM_MODULE"
}

ensure_helm() {
    place_helm || build_tool helm "$HELM_MODULE"
}

place_kind() {
    place_tool kind "kind v0\.(3[1-9]|[4-9][0-9])\." --version
}

place_helm() {
    place_tool helm "^v3\.(1[4-9]|[2-9][0-9])\." version --short
}

# place_tool NAME PATTERN ARGS...: links NAME from PATH into .cluster/bin if its output for ARGS matches PATTERN.
place_tool() {
    local name=$1 pattern=$2 found link=$STATE/bin/$1
    shift 2
    # A program that was built here is checked again.
    [[ -x $link && $(readlink "$link") != "$CACHE"/* ]] && return
    # .cluster/bin itself may be on PATH, even twice.
    found=$(type -ap "$name" | while read -r path; do [[ ${path%/*} -ef $STATE/bin ]] || { echo "$path" && break; }; done)
    [[ -n $found ]] || return 1
    timeout 20 "$found" "$@" 2>/dev/null | grep -Eq "$pattern" || return 1
    ln -sf "$found" "$link"
}

build_tool() {
    local name=$1 built
    start_tool "$@"
    [[ -z ${STEP_PID[$name]:-} ]] || step_wait "$name"
    built=$(built_tool "$@")
    ln -sf "$built" "$STATE/bin/$name"
}

start_tool() {
    local name=$1 module=$2 built
    built=$(built_tool "$@")
    start_build "$name" "$built" "Build $name ${module##*@} from its Go module" go_install "$module" "$built"
}

# start_build NAME PROGRAM TITLE COMMAND...: starts to build a program with Go, unless it exists or is being built.
start_build() {
    local name=$1 program=$2 title=$3
    shift 3
    [[ -x $program || -n ${STEP_PID[$name]:-} ]] && return
    require_go "$name"
    # For a short-lived compiler, fewer garbage collections save a fifth of the processor time for 0.3 GiB of memory.
    GOGC=400 step_start "$name" "$title" "$@"
}

built_tool() {
    echo "$CACHE/$1-${2##*@}"
}

require_go() {
    # shellcheck disable=SC2059
    command -v go >/dev/null || fail "$(printf "$GO_HINT" "$1" "$1")"
}

go_install() {
    local module=$1 target=$2 folder=$STATE/build/go-install-${2##*/}
    mkdir -p "$folder"
    GOBIN=$folder CGO_ENABLED=${WITH_CGO:-0} nice go install -trimpath "$GO_WITHOUT_DEBUGGER" -ldflags="-s -w" "$module"
    mv "$folder"/* "$target"
    rmdir "$folder"
}
