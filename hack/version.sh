#!/usr/bin/env bash
# Writes a version into VERSION and into each file that repeats it. Usage: hack/version.sh VERSION
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

main() {
    local version=$1
    [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-dev)?$ ]] || fail "VERSION is '$version': write X.Y.Z, or X.Y.Z-dev between two releases."
    echo "$version" >VERSION
    sed -i "s|^version = \".*\"$|version = \"$version\"|" worker_image/pyproject.toml plugin/pyproject.toml local/pyproject.toml
    sed -i "s|^__version__ = \".*\"$|__version__ = \"$version\"|" operator/elastic_pytorch_operator/__init__.py
    sed -i -e "s|^version: .*|version: $version|" -e "s|^appVersion: .*|appVersion: \"$version\"|" \
        charts/elastic-pytorch-operator/Chart.yaml
}

cd "$ROOT"
main "${1:-}"
