# shellcheck shell=bash
# A node image for kind where none can be pulled: everything in it is built here or comes from Debian. Sourced.

NODE_BUILD=$STATE/build/node

# The name changes with whatever goes into the image, so an existing image of that name is the right one.
node_image_from_source() {
    echo "elastic-pytorch/node:$(fingerprint "$OFFLINE"/{Dockerfile,node-image.sh,coredns,pause} "${KUBERNETES_SOURCES[@]}" \
        "word=$KIND_VERSION" "word=$KUBERNETES_VERSION")"
}

ensure_node_image_from_source() {
    local image=$1
    docker image inspect "$image" >/dev/null 2>&1 && return
    ensure_base_image bookworm
    await_binary kubernetes
    await_binary coredns
    await_binary pause
    step node-image "Assemble the node image" assemble_node_image "$image"
}

assemble_node_image() {
    local image=$1 container=elastic-pytorch-node-assembly base=elastic-pytorch/node-base:build
    prepare_node_context
    build_stage pause elastic-pytorch/pause:build
    build_stage coredns elastic-pytorch/coredns:build
    build_stage components elastic-pytorch/kubernetes-components:build
    build_stage node "$base"

    docker rm -f -v "$container" >/dev/null 2>&1 || true
    docker run --detach --privileged --name "$container" --entrypoint sleep "$base" infinity
    docker exec --detach "$container" containerd
    until docker exec "$container" ctr version >/dev/null 2>&1; do sleep 0.5; done
    local images=()
    mapfile -t images < <(tag_component_images)
    # Unpacked only on the node: a layer kept twice would double what each node copies at its start.
    docker save "${images[@]}" |
        docker exec -i "$container" ctr --namespace k8s.io images import --no-unpack --digests --all-platforms -
    docker exec "$container" ctr --namespace k8s.io images list --quiet
    docker stop --time 5 "$container"
    docker commit --change 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]' "$container" "$image"
    docker rm -f -v "$container"
    docker image rm --no-prune "${images[@]}"
    rm -rf "$NODE_BUILD"
}

prepare_node_context() {
    local kind_source
    kind_source=$(module_folder "sigs.k8s.io/kind@$KIND_VERSION")
    rm -rf "$NODE_BUILD"
    mkdir -p "$NODE_BUILD"
    cp -r "$kind_source/images/base/files" "$NODE_BUILD/files"
    chmod -R u+w "$NODE_BUILD/files"
    # Containers here may not lower their OOM score below their parent's.
    sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' "$NODE_BUILD/files/etc/containerd/config.toml"
    cp "$OFFLINE/Dockerfile" "$NODE_BUILD/"
    local name
    for name in kubernetes coredns pause; do cp "$(built_binary "$name")" "$NODE_BUILD/$name"; done
}

build_stage() {
    local stage=$1 image=$2
    docker build --label "$LABEL" --target "$stage" --tag "$image" \
        --build-arg "BASE=$(base_image bookworm)" --build-arg "KUBERNETES_VERSION=$KUBERNETES_VERSION" "$NODE_BUILD"
}

# Gives the images the names that kubeadm asks for, and prints those names.
tag_component_images() {
    local name source
    (
        ln -sf "$NODE_BUILD/kubernetes" "$NODE_BUILD/kubeadm"
        "$NODE_BUILD/kubeadm" config images list --kubernetes-version "$KUBERNETES_VERSION"
        sed -n 's/^ *sandbox_image = "\(.*\)"$/\1/p' "$NODE_BUILD/files/etc/containerd/config.toml"
        echo "elastic-pytorch/kubernetes-components:$KUBERNETES_VERSION"
    ) | sort -u | while read -r name; do
        case $name in
        */pause:*) source=elastic-pytorch/pause:build ;;
        */coredns:*) source=elastic-pytorch/coredns:build ;;
        *) source=elastic-pytorch/kubernetes-components:build ;;
        esac
        docker tag "$source" "$name"
        echo "$name"
    done
}
