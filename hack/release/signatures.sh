# shellcheck shell=bash
# Signs a pushed release, and attaches SBOMs and provenance to each image, so that a cluster's policy can verify them. Sourced.

# Only cosign gets them.
SIGNER_SECRETS=(COSIGN_PASSWORD COSIGN_PRIVATE_KEY SIGSTORE_ID_TOKEN ACTIONS_ID_TOKEN_REQUEST_TOKEN)

# Sets SIGNER to cosign's options for a key, or for the identity of a CI job; otherwise it is empty.
choose_signer() {
    SIGNER=()
    if [[ -n ${COSIGN_KEY:-} ]]; then
        [[ $COSIGN_KEY == *://* || -r $COSIGN_KEY ]] || fail "COSIGN_KEY is $COSIGN_KEY, which cannot be read."
        # A key needs no log as a proof of its time, and a log would publish what a private registry has.
        SIGNER=(--key "$COSIGN_KEY" --tlog-upload=false --use-signing-config=false)
    elif [[ -n ${SIGSTORE_ID_TOKEN:-}${ACTIONS_ID_TOKEN_REQUEST_TOKEN:-} ]]; then
        SIGNER=(--yes)
    fi
    export -n "${SIGNER_SECRETS[@]}"
}

is_to_be_signed() {
    [[ -n ${PUSH:-} ]] && ((${#SIGNER[@]}))
}

# sign_release DIGEST-OF-THE-CHART
sign_release() {
    local name
    "$PYTHON" -c 'import json, sys; json.dump(json.load(sys.stdin)["predicate"], sys.stdout)' <"$DIST/provenance.json" >"$WORK/predicate.json"
    for name in "${IMAGES[@]}"; do sign_image "$name"; done
    as_signer sign "$REGISTRY/charts/$CHART@$1"
}

# The digest is that of all platforms, as in the chart, and gets the packages of each platform.
sign_image() {
    local image=$REGISTRY/$1@ packages
    image+=$(image_digest "$1")
    as_signer sign "$image"
    as_signer attest --type slsaprovenance1 --predicate "$WORK/predicate.json" "$image"
    for packages in "$DIST/$1"-*.spdx.json; do as_signer attest --type spdxjson --predicate "$packages" "$image"; done
}

as_signer() (
    export "${SIGNER_SECRETS[@]}"
    cosign "$1" "${SIGNER[@]}" ${PLAIN_HTTP:+--allow-http-registry} "${@:2}"
)
