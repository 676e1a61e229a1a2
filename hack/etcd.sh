#!/usr/bin/env bash
# An etcd that serves the v2 API and its Python client, for the tests of the etcd-v2 rendezvous: out of Debian's packages, which are
# unpacked but not installed. Where that cannot be done, those tests are skipped.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
source "$ROOT/hack/step.sh"

ETCD=$STATE/etcd

main() {
    [[ -x $ETCD/usr/bin/etcd ]] && return
    step etcd "Unpack etcd, if Debian's archive can be reached" fetch_or_explain
}

fetch_or_explain() {
    if ! command -v apt-get dpkg >/dev/null; then
        echo "This is no Debian: the tests of the etcd-v2 rendezvous will be skipped."
    elif ! fetch; then
        echo "The packages cannot be had: the tests of the etcd-v2 rendezvous will be skipped."
    fi
}

fetch() {
    local packages=$ETCD.packages package
    rm -rf "$packages" "$ETCD.partial"
    mkdir -p "$packages" "$ETCD.partial"
    # On a new machine there are no lists of packages yet, and only root can fetch them.
    (cd "$packages" && { download || { apt-get update -qq && download; }; }) || return 1
    for package in "$packages"/*.deb; do
        dpkg -x "$package" "$ETCD.partial" || return 1
    done
    rm -rf "$packages"
    mv "$ETCD.partial" "$ETCD"
}

download() {
    apt-get download -qq etcd-server python3-etcd python3-dnspython
}

cd "$ROOT"
main
