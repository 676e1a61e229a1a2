#!/usr/bin/env bash
# An etcd that serves the v2 API and its Python client, for the tests of the etcd-v2 rendezvous, from Debian's packages.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
source "$ROOT/hack/debian-packages.sh"

ETCD=$STATE/etcd

main() {
    [[ -x $ETCD/usr/bin/etcd ]] && return
    step etcd "Unpack etcd, if Debian's archive can be reached" fetch_or_explain
}

fetch_or_explain() {
    if ! command -v apt-get dpkg >/dev/null; then
        echo "This is no Debian: the tests of the etcd-v2 rendezvous will be skipped."
    elif ! unpack_debian "$ETCD" etcd-server python3-etcd python3-dnspython; then
        echo "The packages cannot be had: the tests of the etcd-v2 rendezvous will be skipped."
    fi
}

cd "$ROOT"
main
