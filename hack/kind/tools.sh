# shellcheck shell=bash
# kind, kubectl and helm, found at .cluster/bin by everything else: those on PATH if they fit, else built from Go modules.
# Sourced after hack/step.sh.

GO_HINT="No suitable %s on PATH and no Go to build it with. Install %s, or Go 1.25 or newer."

ensure_tools() {
    place_tool kind "kind v0\.(3[1-9]|[4-9][0-9])\." --version ||
        build_tool kind "sigs.k8s.io/kind@$KIND_VERSION"
    ensure_helm
    # Within one minor release of the cluster's, as Kubernetes asks for. Without one it comes from the from-source build.
    place_tool kubectl 'gitVersion: v1\.3[345]\.' version --client --output yaml ||
        ensure_kubernetes_binary
}

ensure_helm() {
    place_tool helm "^v3\.(1[4-9]|[2-9][0-9])\." version --short ||
        build_tool helm "helm.sh/helm/v3/cmd/helm@$HELM_VERSION"
}

# place_tool NAME PATTERN ARGS...: links NAME from PATH into .cluster/bin if what it prints for ARGS matches PATTERN.
place_tool() {
    local name=$1 pattern=$2 found link=$STATE/bin/$1
    shift 2
    # One that was built here is asked for by its version again.
    [[ -x $link && $(readlink "$link") != "$CACHE"/* ]] && return
    found=$(PATH=${PATH#"$STATE/bin:"} command -v "$name") || return 1
    timeout 20 "$found" "$@" 2>/dev/null | grep -Eq "$pattern" || return 1
    ln -sf "$found" "$link"
}

build_tool() {
    local name=$1 module=$2 built
    built=$CACHE/$name-${module##*@}
    if [[ ! -x $built ]]; then
        require_go "$name"
        step "$name" "Build $name ${module##*@} from its Go module" go_install "$module" "$built"
    fi
    ln -sf "$built" "$STATE/bin/$name"
}

require_go() {
    # shellcheck disable=SC2059
    command -v go >/dev/null || fail "$(printf "$GO_HINT" "$1" "$1")"
}

go_install() {
    local module=$1 target=$2 folder=$STATE/build/go-install-${2##*/}
    mkdir -p "$folder"
    GOBIN=$folder CGO_ENABLED=0 go install -trimpath -ldflags="-s -w" "$module"
    mv "$folder"/* "$target"
    rmdir "$folder"
}
