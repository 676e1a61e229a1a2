# shellcheck shell=bash
# Kubernetes, CoreDNS and pause, built from Go modules into the cache. Sourced.

OFFLINE=$ROOT/hack/offline
# One program for all releases, with the modules of another release in their own folder.
KUBERNETES_SOURCES=("$OFFLINE/kubernetes")
[[ $KUBERNETES_MODULES == kubernetes ]] || KUBERNETES_SOURCES+=("$OFFLINE/$KUBERNETES_MODULES")

# built_binary NAME: its path in the cache, for these sources and this release.
built_binary() {
    local name=$1 inputs=("$OFFLINE/$1")
    if [[ $name == kubernetes ]]; then
        name=$KUBERNETES_MODULES
        inputs=("${KUBERNETES_SOURCES[@]}" "word=$KUBERNETES_VERSION")
    fi
    echo "$CACHE/$name-$(fingerprint "${inputs[@]}")"
}

start_binaries() {
    start_kubernetes
    start_binary pause "Build pause"
    start_binary coredns "Build CoreDNS from its Go module"
}

start_binary() {
    local name=$1 title=$2 binary
    binary=$(built_binary "$name")
    start_build "$name" "$binary" "$title" build_binary "$name" "$binary"
}

start_kubernetes() {
    start_binary kubernetes "Build Kubernetes $KUBERNETES_VERSION from its Go modules (10 minutes on two cores)"
}

ensure_kubernetes_binary() {
    start_kubernetes
    await_binary kubernetes
    ln -sf "$(built_binary kubernetes)" "$STATE/bin/kubectl"
}

await_binary() {
    [[ -z ${STEP_PID[$1]:-} ]] || step_wait "$1"
}

build_binary() {
    local name=$1 binary=$2 modules=$1 flags="-s -w" version=${KUBERNETES_VERSION#v}
    if [[ $name == kubernetes ]]; then
        modules=$KUBERNETES_MODULES
        flags+=" -X k8s.io/component-base/version.gitVersion=v$version"
        flags+=" -X k8s.io/component-base/version.gitMajor=${version%%.*}"
        flags+=" -X k8s.io/component-base/version.gitMinor=$(cut -d. -f2 <<<"$version")"
    fi
    cd "$OFFLINE/$name" || return
    CGO_ENABLED=0 go build -buildvcs=false -mod=readonly -modfile="$OFFLINE/$modules/go.mod" -trimpath "$GO_WITHOUT_DEBUGGER" \
        -ldflags="$flags" -o "$binary.partial" .
    # Other releases stay.
    rm -f "$CACHE/$modules"-????????????????
    mv "$binary.partial" "$binary"
}
