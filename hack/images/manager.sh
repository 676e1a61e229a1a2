# shellcheck shell=bash disable=SC2153
# Another project's controller on the cluster, built from its Go module or source tree. Sourced after hack/images/build.sh by
# scripts like hack/kueue.sh, which set variables, define install_manifests and remove_all, and end with `manage "$@"`.
#   PROGRAMS         the image's programs: FILE=PACKAGE, one of them the manager
#   REPLACEMENT      MODULE=MODULE@VERSION to build it with; may be empty
#   MANIFESTS        the folder of its manifests in the source
#   FOLDER           with a probe.yaml that the API server admits once it is ready, and a kustomization.yaml for apply_manifests
#   SOURCE_VARIABLE  the variable in which users may name a source tree

UNAVAILABLE=3
IMAGE=elastic-pytorch-$NAME:$VERSION
# The programs and manifests of one release: with these, its source is not needed again.
BUILT=$CACHE/$NAME-$VERSION
RENDERED=$STATE/$NAME

# manage [remove]: installs it by default, and ends with 3 if that lacks something.
manage() {
    cd "$ROOT"
    case ${1:-install} in
    install) install_manager ;;
    remove) step "$NAME-remove" "Remove $TITLE" remove_all ;;
    *) fail "Usage: $0 [remove]" ;;
    esac
}

check_source() {
    grep -qs "^module $MODULE\$" "$1/go.mod" || unavailable "$SOURCE_VARIABLE=$1 is no source tree of $MODULE."
}

install_manager() {
    local inputs
    one_at_a_time
    ensure_manager
    inputs=$(fingerprint hack/images/manager.Dockerfile "$BUILT/programs")
    is_built "$IMAGE" "$inputs" || step "$NAME-image" "Build $IMAGE" build_manager_image "$inputs"
    load_if_missing "$NAME-load" "$IMAGE" --whole "$CONTROL_PLANE"
    step "$NAME-install" "Install $TITLE $VERSION" install_manifests
    step "$NAME-ready" "Wait for $TITLE" await_answers
}

ensure_manager() {
    local source=${!SOURCE_VARIABLE:-}
    [[ ! -d $BUILT/programs ]] || return 0
    command -v go >/dev/null || unavailable "There is no Go to build it with: install Go $GO_LEAST or newer."
    if [[ -n $source ]]; then
        check_source "$source"
    else
        source=$(module_folder "$MODULE@$VERSION" 2>/dev/null) || unavailable "Its Go module cannot be fetched: name a source tree of $VERSION in $SOURCE_VARIABLE."
    fi
    step "$NAME-build" "Build $TITLE $VERSION (about $BUILD_MINUTES minutes)" build_manager "$source"
}

unavailable() {
    say "${TITLE^} $VERSION cannot be had here. $1"
    exit $UNAVAILABLE
}

build_manager() {
    local source=$1 partial=$BUILT.partial program options=()
    rm -rf "$BUILT" "$partial"
    mkdir -p "$partial/programs"
    cp -r "$source/$MANIFESTS" "$partial/$MANIFESTS"
    cp "$source/go.mod" "$source/go.sum" "$partial"
    chmod -R u+w "$partial"
    if [[ -n ${REPLACEMENT:-} ]]; then
        go mod edit -replace="$REPLACEMENT" "$partial/go.mod"
        options=(-mod=mod -modfile="$partial/go.mod")
    fi
    cd "$source" || return
    for program in "${PROGRAMS[@]}"; do
        CGO_ENABLED=0 go build "${options[@]}" -buildvcs=false -trimpath -ldflags="-s -w $LDFLAGS" \
            -o "$partial/programs/${program%%=*}" "${program#*=}"
    done
    mv "$partial" "$BUILT"
}

build_manager_image() {
    docker build --file hack/images/manager.Dockerfile --label "$LABEL" --label "$INPUTS_LABEL=$1" --tag "$IMAGE" "$BUILT"
}

apply_manifests() {
    rm -rf "$RENDERED"
    mkdir -p "$RENDERED"
    cp -r "$BUILT/$MANIFESTS" "$RENDERED"
    sed "s|@IMAGE@|$IMAGE|" "$FOLDER/kustomization.yaml" >"$RENDERED/kustomization.yaml"
    kubectl kustomize "$RENDERED" >"$RENDERED.yaml"
    # Some CRDs are too long for a client-side apply's annotation.
    kubectl apply --server-side --force-conflicts --filename "$RENDERED.yaml"
}

# A ready manager may still lack its certificate, or be unknown to kube-proxy: only an answer of its webhooks counts.
await_answers() {
    retry 120 kubectl create --dry-run=server --filename "$FOLDER/probe.yaml" || {
        kubectl --namespace "$CONTROLLER_NAMESPACE" logs --tail 20 "deployment/$DEPLOYMENT"
        return 1
    }
}
