# shellcheck shell=bash
# The images of a release, as OCI layouts that depend only on their content. Sourced.

IMAGES=(elastic-pytorch-operator elastic-pytorch-agent)
OCI_INDEX=application/vnd.oci.image.index.v1+json

declare -A DOCKERFILES=([elastic-pytorch-operator]=Dockerfile [elastic-pytorch-agent]=worker_image/agent.Dockerfile)
declare -A SUITES=([elastic-pytorch-operator]=bookworm [elastic-pytorch-agent]=trixie)
declare -A LINUX_MACHINES=([linux/amd64]=x86_64 [linux/arm64]=aarch64)

# The digest of an image of this release, with all its platforms.
image_digest() {
    regctl image digest "ocidir://$WORK/oci/$1:$VERSION"
}

check_platforms() {
    local platform
    PLATFORMS=${PLATFORMS:-linux/amd64 linux/arm64}
    for platform in $PLATFORMS; do
        [[ -n ${LINUX_MACHINES[$platform]:-} ]] || fail "PLATFORMS has $platform: the platforms are linux/amd64 and linux/arm64."
    done
}

build_images() {
    local name platform built
    for name in "${IMAGES[@]}"; do
        built=()
        for platform in $PLATFORMS; do
            can_build "$name" "$platform" || continue
            if is_built_natively "$name" "$platform"; then ensure_newest_base "${SUITES[$name]}"; fi
            step "$name-${platform#*/}" "Build $name for $platform" build_platform "$name" "$platform"
            built+=("$platform")
        done
        ((${#built[@]})) || fail "No platform of $name can be built here."
        step "$name-index" "Assemble $name" assemble "$name" "${built[@]}"
        for platform in "${built[@]}"; do
            step "$name-${platform#*/}-sbom" "List what is in $name for $platform" write_sbom "$name" "$platform"
        done
    done
}

is_native() {
    [[ ${LINUX_MACHINES[$1]} == "$(uname -m)" ]]
}

# The build of the agent's image runs nothing of its platform.
is_built_natively() {
    [[ $1 == elastic-pytorch-agent ]] || is_native "$2"
}

can_build() {
    local name=$1 platform=$2 machine=${LINUX_MACHINES[$2]} why
    if is_built_natively "$name" "$platform"; then
        return 0
    elif ! grep -qs enabled "/proc/sys/fs/binfmt_misc/qemu-$machine"; then
        why="this machine cannot run programs for $machine (binfmt_misc has no qemu-$machine)"
    elif ! pull_foreign_base "${SUITES[$name]}" "$platform" >/dev/null 2>&1; then
        why="its base image debian:${SUITES[$name]}-slim cannot be pulled"
    else
        return 0
    fi
    echo "Left out: $name for $platform, because $why." >>"$WORK/left-out"
    say "  --  $(tail -n 1 "$WORK/left-out")"
    return 1
}

ensure_newest_base() {
    timeout 300 docker pull --quiet "debian:$1-slim" >/dev/null 2>&1 || ensure_base "$1"
}

foreign_base() {
    echo "$(base_image "$1")-${2#*/}"
}

# Docker has one image per name, and other builds need debian:SUITE-slim of this machine's platform.
pull_foreign_base() {
    local suite=$1 platform=$2 name=debian:$1-slim before
    before=$(docker image inspect --format '{{.Id}}' "$name" 2>/dev/null || true)
    timeout 300 docker pull --quiet --platform "$platform" "$name" || return 1
    docker tag "$name" "$(foreign_base "$suite" "$platform")"
    if [[ -n $before ]]; then docker tag "$before" "$name"; else docker image rm --no-prune "$name"; fi
}

# Makes $WORK/build, an OCI layout with one tag for each platform.
build_platform() {
    local name=$1 platform=$2 suite=${SUITES[$1]} base layout=ocidir://$WORK/build/$1 tag=${2#*/} options=() digest
    base=debian:$suite-slim
    docker image inspect "$base" >/dev/null 2>&1 || base=$(base_image "$suite")
    if [[ $name == elastic-pytorch-operator ]]; then
        mkdir -p "$TREE/.cluster"
        download_wheels "$TREE/.cluster/wheels" "${LINUX_MACHINES[$platform]}"
        is_native "$platform" || { base=$(foreign_base "$suite" "$platform") && options+=(--platform "$platform"); }
    else
        is_native "$platform" || options+=(--build-arg "ARCHITECTURE=$tag")
    fi
    [[ -z ${NO_CACHE:-} ]] || options+=(--no-cache)
    docker build "${options[@]}" --build-arg "BASE=$base" --build-arg PIP_OPTIONS=--no-index --build-arg "VERSION=$VERSION" \
        --label "$LABEL" --label "org.opencontainers.image.revision=$COMMIT" --label "org.opencontainers.image.title=$name" \
        --file "$TREE/${DOCKERFILES[$name]}" --tag "$name-release:$tag" "$TREE"
    digest=$(docker image inspect --format '{{if .RepoDigests}}{{index .RepoDigests 0}}{{else}}{{.Id}}{{end}}' "$base")
    echo "$base ${digest##*@}" >>"$WORK/inputs"

    docker save --output "$WORK/$name-$tag.tar" "$name-release:$tag"
    regctl image import "$layout:$tag-docker" "$WORK/$name-$tag.tar"
    rm "$WORK/$name-$tag.tar"
    regctl image mod "$layout:$tag-docker" --create "$layout:$tag-timed" --time "set=$CREATED" --reproducible \
        --layer-compress gzip --config-platform "$platform" --label "${LABEL%%=*}"
    # A separate call, as --layer-compress writes Docker's media types again.
    regctl image mod "$layout:$tag-timed" --create "$layout:$tag" --to-oci
}

# Makes one index of the platforms, in a layout without other images, and an archive of the layout.
assemble() {
    local name=$1 platform build=ocidir://$WORK/build/$1 final=$WORK/oci/$1 refs=() digest size
    shift
    for platform in "$@"; do refs+=(--ref "$build:${platform#*/}"); done
    regctl index create "$build:$VERSION" "${refs[@]}"
    regctl image copy "$build:$VERSION" "ocidir://$final:$VERSION"
    digest=$(image_digest "$name")
    size=$(stat --format %s "$final/blobs/${digest/://}")
    # regctl notes the time in the layout, which needs only this.
    printf '{"schemaVersion":2,"mediaType":"%s","manifests":[{"mediaType":"%s","digest":"%s","size":%d,"annotations":{"%s":"%s","%s":"%s"}}]}' \
        "$OCI_INDEX" "$OCI_INDEX" "$digest" "$size" io.containerd.image.name "$REGISTRY/$name:$VERSION" \
        org.opencontainers.image.ref.name "$VERSION" >"$final/index.json"
    pack --directory "$final" --file "$DIST/$name-$VERSION.oci.tar" oci-layout index.json blobs
}

# Syft's time and the name of the document differ in each run; here they depend on the image alone.
write_sbom() {
    local name=$1 platform=$2 found=$WORK/$1-${2#*/}.spdx.json
    SYFT_CHECK_FOR_APP_UPDATE=false syft scan "oci-dir:$WORK/oci/$name" --platform "$platform" --source-name "$name" \
        --source-version "$VERSION" --output "spdx-json=$found" --quiet
    sed -e "s|\"created\":\"[^\"]*\"|\"created\":\"$CREATED\"|" -e "s|syft-\[not provided\]|syft-$SYFT_VERSION|" \
        -e "s|\"documentNamespace\":\"[^\"]*\"|\"documentNamespace\":\"urn:$name:sbom:$(image_digest "$name"):$platform\"|" \
        "$found" >"$DIST/$name-${platform#*/}.spdx.json"
}
