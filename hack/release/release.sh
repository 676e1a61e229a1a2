#!/usr/bin/env bash
# Makes a release of the last commit in dist/, and pushes it on request: see docs/internals/releasing.md.
# Beside the variables of that page, tests set:
#   PLAIN_HTTP=1   REGISTRY has no TLS
#   DIST=folder    instead of dist/; it must not exist
#   ALLOW_DIRTY=1  takes the files as they are, committed or not
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"
source "$ROOT/hack/kind/docker-engine.sh"
source "$ROOT/hack/kind/tools.sh"
source "$ROOT/hack/images/build.sh"
source "$ROOT/hack/release/images.sh"
source "$ROOT/hack/release/signatures.sh"

DIST=${DIST:-$ROOT/dist}
WORK=$STATE/release
TREE=$WORK/tree
CHART=elastic-pytorch-operator
PYTHON=$ROOT/.venv/bin/python

main() {
    check_request
    check_platforms
    check_tree
    one_at_a_time
    ensure_docker
    ensure_helm
    build_tool regctl "github.com/regclient/regclient/cmd/regctl@$REGCTL_VERSION"
    build_tool syft "github.com/anchore/syft/cmd/syft@$SYFT_VERSION"
    if is_to_be_signed; then hack/release/cosign.sh; fi
    rm -rf "$WORK" "$DIST"
    mkdir -p "$TREE" "$DIST"
    copy_sources

    step packages "Build the wheels and the source distributions" build_packages
    build_images
    step chart "Package the chart" build_chart
    step krew "Pack the plugin for krew" build_krew
    step provenance "Write the provenance, the checksums and the signature" write_proofs
    [[ -z ${PUSH:-} ]] || step push "Push to $REGISTRY" push
    report
}

check_request() {
    VERSION=${VERSION:-}
    VERSION=${VERSION#v} # a tag does as well
    [[ -n ${VERSION:-} && -n ${REGISTRY:-} ]] || fail "Usage: make release VERSION=0.3.0 REGISTRY=registry.example.com/ml [PUSH=1]"
    check_registry "$REGISTRY"
    [[ $VERSION == "$(<VERSION)" ]] || fail "The file VERSION says $(<VERSION): run \`make version VERSION=$VERSION\` and commit it."
    local heading="## $VERSION"
    [[ $VERSION != *-dev ]] || heading="## Unreleased"
    grep -q "^$heading\( \|$\)" CHANGELOG.md || fail "CHANGELOG.md has no section '$heading'."
    [[ -z ${SIGNING_KEY:-} || -r $SIGNING_KEY ]] || fail "SIGNING_KEY is $SIGNING_KEY, which cannot be read."
    [[ -z ${SIGNING_KEY:-} ]] || SIGNING_KEY_PEM=$(<"$SIGNING_KEY")
    SIGNING_KEY_PEM=${SIGNING_KEY_PEM:-}
    # Only some commands get them.
    export -n SIGNING_KEY_PEM REGISTRY_PASSWORD
    choose_signer
    [[ $DIST == "$ROOT/dist" || ! -e $DIST ]] || fail "DIST is $DIST, which is there already."
}

# A release names its commit, so other changes must not be in it.
check_tree() {
    if [[ -n ${ALLOW_DIRTY:-} ]]; then
        say "ALLOW_DIRTY IS SET: THIS IS NO RELEASE, BUT A TEST OF FILES THAT MAY BE IN NO COMMIT."
    else
        [[ -z $(git status --porcelain) ]] || fail "The checkout has changes: commit them first."
    fi
    COMMIT=$(git rev-parse HEAD)
    export SOURCE_DATE_EPOCH
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
    CREATED=$(date --utc --date="@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
    umask 022
}

copy_sources() {
    if [[ -n ${ALLOW_DIRTY:-} ]]; then
        git ls-files -co --exclude-standard -z | tar --create --null --ignore-failed-read --files-from - 2>/dev/null | tar -xf - -C "$TREE"
    else
        git -c tar.umask=022 archive HEAD | tar -xf - -C "$TREE"
    fi
    cp LICENSE "$TREE/worker_image/"
    cp LICENSE "$TREE/plugin/"
    cp LICENSE "$TREE/local/"
}

# Archives that depend only on their files.
pack() {
    tar --sort=name --format=gnu --mode=u=rwX,go=rX --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --create "$@"
}

# repack ARCHIVE: removes the times of its making.
repack() {
    local folder
    folder=$(mktemp -d -p "$WORK")
    tar -xzf "$1" -C "$folder"
    (cd "$folder" && pack -- *) | gzip -9n >"$1"
    rm -rf "$folder"
}

build_packages() {
    local project archive
    for project in . worker_image plugin local; do
        .venv/bin/uv build --quiet --offline --no-build-isolation --python "$PYTHON" --out-dir "$DIST" "$TREE/$project"
    done
    rm -f "$DIST/.gitignore"
    for archive in "$DIST"/*.tar.gz; do repack "$archive"; done
}

# By default, the packaged chart uses the images of this release, by digest.
build_chart() {
    local chart=$TREE/charts/$CHART name key
    for name in "${IMAGES[@]}"; do
        key=image
        [[ $name != elastic-pytorch-agent ]] || key=agentImage
        sed -i -e "/^$key:/,/^[a-z]/ s|^  registry: \"\"|  registry: \"$REGISTRY\"|" \
            -e "/^$key:/,/^[a-z]/ s|^  digest: \"\"|  digest: \"$(image_digest "$name")\"|" "$chart/values.yaml"
    done
    [[ $(grep -c 'digest: "sha256:' "$chart/values.yaml") == 2 ]]
    helm package --destination "$DIST" "$chart"
    repack "$DIST/$CHART-$VERSION.tgz"
    # Helm writes the file's time into the manifest that it pushes.
    touch --date="@$SOURCE_DATE_EPOCH" "$DIST/$CHART-$VERSION.tgz"
}

build_krew() {
    local url=${DOWNLOAD_URL:-https://example.invalid/$VERSION}
    [[ -n ${DOWNLOAD_URL:-} ]] || echo "DOWNLOAD_URL is not set: krew needs --archive beside --manifest."
    "$PYTHON" "$TREE/hack/krew/release.py" --uri "$url/kubectl-epj.tar.gz" --homepage "$url" --output "$DIST"
}

write_proofs() {
    local name
    for name in "${IMAGES[@]}"; do echo "$REGISTRY/$name:$VERSION@$(image_digest "$name")"; done >"$DIST/images.txt"
    "$PYTHON" hack/release/provenance.py "$DIST" --version "$VERSION" --registry "$REGISTRY" --commit "$COMMIT" \
        --inputs "$WORK/inputs" >"$WORK/provenance.json"
    mv "$WORK/provenance.json" "$DIST/"
    (cd "$DIST" && sha256sum -- * >"$WORK/SHA256SUMS" && mv "$WORK/SHA256SUMS" .)
    [[ -z $SIGNING_KEY_PEM ]] || openssl dgst -sha256 -sign <(echo "$SIGNING_KEY_PEM") -out "$DIST/SHA256SUMS.sig" "$DIST/SHA256SUMS"
}

push() {
    local name pushed credentials host=${REGISTRY%%/*} helm_options=() regctl=(regctl)
    if [[ -n ${PLAIN_HTTP:-} ]]; then
        helm_options=(--plain-http)
        regctl+=(--host "reg=$host,tls=disabled")
    fi
    if [[ -n ${REGISTRY_USER:-} ]]; then
        # Apart from the user's own.
        credentials=$(mktemp -d)
        # shellcheck disable=SC2064
        trap "rm -rf '$credentials'" EXIT
        export REGCTL_CONFIG=$credentials/regctl.json HELM_REGISTRY_CONFIG=$credentials/helm.json
        "${regctl[@]}" registry login "$host" --user "$REGISTRY_USER" --pass-stdin <<<"${REGISTRY_PASSWORD:-}"
        helm registry login "$host" "${helm_options[@]}" --username "$REGISTRY_USER" --password-stdin <<<"${REGISTRY_PASSWORD:-}"
        if is_to_be_signed; then
            export DOCKER_CONFIG=$credentials
            cosign login "$host" --username "$REGISTRY_USER" --password-stdin <<<"${REGISTRY_PASSWORD:-}"
        fi
    fi
    for name in "${IMAGES[@]}"; do
        "${regctl[@]}" image copy "ocidir://$WORK/oci/$name:$VERSION" "$REGISTRY/$name:$VERSION"
        pushed=$("${regctl[@]}" image digest "$REGISTRY/$name:$VERSION")
        [[ $pushed == "$(image_digest "$name")" ]] || { echo "$REGISTRY/$name has digest $pushed"; return 1; }
    done
    pushed=$(helm push "$DIST/$CHART-$VERSION.tgz" "oci://$REGISTRY/charts" "${helm_options[@]}" 2>&1) || { echo "$pushed"; return 1; }
    echo "$pushed"
    if is_to_be_signed; then sign_release "$(sed -n 's/^Digest: //p' <<<"$pushed")"; fi
}

report() {
    local line
    while read -r line; do say "$line"; done < <(cat "$WORK/left-out" "$DIST/images.txt" 2>/dev/null)
    [[ -n $SIGNING_KEY_PEM ]] || say "SIGNING_KEY is not set: the files are not signed."
    if [[ -n ${PUSH:-} ]] && ! is_to_be_signed; then say "COSIGN_KEY is not set, and there is no OIDC token: the images and the chart are not signed."; fi
    [[ -n ${DOWNLOAD_URL:-} ]] || say "DOWNLOAD_URL is not set: epj.yaml works with its archive only (kubectl krew install --manifest=… --archive=…)."
    say "dist/ is complete: sha256sum --check SHA256SUMS says whether it still is."
}

cd "$ROOT"
main
