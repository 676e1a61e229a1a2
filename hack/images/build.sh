# shellcheck shell=bash
# Builds images and loads them onto nodes. Sourced.

source "$ROOT/hack/offline/base-image.sh"
source "$ROOT/hack/small-venv.sh"

WHEELS=$STATE/wheels
INPUTS_LABEL=dev.elasticpytorch.inputs

check_registry() {
    [[ $1 =~ ^[a-z0-9.:/_-]+$ && $1 != */ ]] || fail "REGISTRY is '$1': write a host and a path in lower case, without https:// and without a slash at its end."
}

is_built() {
    [[ $(docker image inspect --format "{{index .Config.Labels \"$INPUTS_LABEL\"}}" "$1" 2>/dev/null) == "$2" ]]
}

fetch_wheels_if_changed() {
    local wanted
    wanted=$(fingerprint requirements.lock)
    [[ $(cat "$WHEELS/.inputs" 2>/dev/null) == "$wanted" ]] && return
    ensure_python
    step wheels "Fetch the operator's wheels" fetch_wheels "$wanted"
}

fetch_wheels() {
    rm -rf "$WHEELS"
    download_wheels "$WHEELS" "$(uname -m)"
    echo "$1" >"$WHEELS/.inputs"
}

# The image's Python is Debian 12's 3.11.
download_wheels() {
    pip_download "$1" "$2" 3.11 --requirement requirements.lock --require-hashes
}

# For images on top of the workers': the packages of a pattern, in the releases of the tests, for Debian's Python 3.13.
download_pinned_wheels() {
    local folder=$1 packages=$2 pins
    mapfile -t pins < <(grep -oE "${packages}[^ ]+" requirements-dev.lock)
    rm -rf "$folder"
    pip_download "$folder" "$(uname -m)" 3.13 "${pins[@]}"
}

# pip_download FOLDER MACHINE PYTHON WHAT...: on this machine, as containers may not reach a package index.
pip_download() {
    local folder=$1 machine=$2 python=$3
    shift 3
    "$PYTHON" -m pip download --quiet --dest "$folder" --no-deps --only-binary :all: --python-version "$python" --implementation cp \
        --abi "cp${python/./}" --abi abi3 --abi none --platform "manylinux2014_$machine" --platform "manylinux_2_17_$machine" \
        --platform "manylinux_2_28_$machine" "$@"
}

ensure_base() {
    local suite=$1
    docker image inspect "debian:$suite-slim" >/dev/null 2>&1 && return
    # Where kind's node image could be pulled, so can this one.
    if docker image inspect "$KIND_NODE_IMAGE" >/dev/null 2>&1; then
        timeout 300 docker pull --quiet "debian:$suite-slim" >/dev/null 2>&1 && return
    fi
    ensure_base_image "$suite"
}

# The folder has all that the Dockerfile copies.
build_image() {
    local image=$1 folder=$2 file=$2/$3 suite=$4 inputs=$5 base=debian:$4-slim target
    docker image inspect "$base" >/dev/null 2>&1 || base=$(base_image "$suite")
    local build=(docker build --file "$file" --build-arg "BASE=$base" --build-arg PIP_OPTIONS=--no-index
        --build-arg "VERSION=$(<VERSION)" --label "$LABEL")
    for target in base code; do
        "${build[@]}" --target "$target" --tag "${image%:*}-$target:${image#*:}" "$folder"
    done
    "${build[@]}" --label "$INPUTS_LABEL=$inputs" --tag "$image" "$folder"
}

# build_on_workers NAME PACKAGES DOCKERFILE OPTION...: elastic-pytorch-worker-NAME, with the packages of a pattern.
build_on_workers() {
    local name=$1 packages=$2 file=$3 image=elastic-pytorch-worker-$1:dev inputs
    shift 3
    inputs=$(fingerprint .dockerignore worker_image examples requirements-dev.lock "hack/images/$name.sh" "$file")
    is_built "$image" "$inputs" && return
    ensure_python
    step "$name-wheels" "Fetch the wheels of $image" download_pinned_wheels "$STATE/wheels-$name" "$packages"
    step "$name-image" "Build $image" docker build --file "$file" --build-arg "BASE=$WORKER_IMAGE" "$@" \
        --label "$LABEL" --label "$INPUTS_LABEL=$inputs" --tag "$image" .
}

# load_if_missing STEP IMAGE [--whole] NODE...
load_if_missing() {
    local step=$1 image=$2 options=() nodes
    shift 2
    if [[ $1 == --whole ]]; then
        options=("$1")
        shift
    fi
    mapfile -t nodes < <(python3 hack/images/load_image.py --list-missing "$image" "$@")
    ((${#nodes[@]} == 0)) || step "$step" "Load $image to ${#nodes[@]} nodes" \
        python3 hack/images/load_image.py "${options[@]}" "$image" "${nodes[@]}"
}
