#!/usr/bin/env bash
# Pins the requirements of pyproject.toml with hashes, for Python 3.11, which the operator's image and the tests have.
# Pins that still fit stay, unless UPGRADE is set.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

write_lock() {
    local lock=$1
    shift
    [[ -z ${UPGRADE:-} ]] || set -- --upgrade "$@"
    .venv/bin/uv pip compile pyproject.toml --quiet --python-version 3.11 --generate-hashes --no-header \
        --no-emit-index-url --no-emit-find-links --output-file "$lock" "$@"
    # shellcheck disable=SC2016
    sed -i -e '/^# Made by/d' -e '1i # Made by `make lock` from pyproject.toml; do not edit.' "$lock"
}

cd "$ROOT"
step lock "Write requirements.lock" write_lock requirements.lock
step lock-dev "Write requirements-dev.lock" write_lock requirements-dev.lock --group dev
