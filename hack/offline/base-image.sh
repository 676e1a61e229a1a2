# shellcheck shell=bash
# Debian base images: pulled where that is possible, else made from Debian's archive. Sourced.

# base_image SUITE: its local name.
base_image() {
    echo "elastic-pytorch/debian:$1"
}

ensure_base_image() {
    local suite=$1
    docker image inspect "$(base_image "$suite")" >/dev/null 2>&1 && return
    step "debian-$suite" "Make a base image of Debian $suite" make_base_image "$suite"
}

make_base_image() {
    local suite=$1 archive=$CACHE/debian-$1.tar.gz
    if [[ ! -f $archive ]]; then
        command -v debootstrap >/dev/null || install_packages debootstrap
        bootstrap_debian "$suite" "$archive"
    fi
    docker import --change "LABEL $LABEL" "$archive" "$(base_image "$suite")"
}

bootstrap_debian() {
    local suite=$1 archive=$2 root
    root=$(mktemp -d)
    debootstrap --variant=minbase --include=ca-certificates "$suite" "$root"
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
    rm -rf "$root"/usr/share/{doc,man,locale,info}/*
    # As in Debian's slim images: dpkg omits documentation.
    printf 'path-exclude /usr/share/%s/*\n' doc man locale info >"$root/etc/dpkg/dpkg.cfg.d/without-docs"
    tar -C "$root" -cf - . | gzip -1 >"$archive.partial"
    mv "$archive.partial" "$archive"
    rm -rf "$root"
}
