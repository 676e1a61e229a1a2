#!/usr/bin/env bash
# The virtual environment of the checks and tests.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

STAMP=$ROOT/.venv/.made-from

main() {
    local wanted
    wanted=$(fingerprint requirements-dev.lock VERSION pyproject.toml worker_image/pyproject.toml plugin/pyproject.toml local/pyproject.toml)
    [[ $(cat "$STAMP" 2>/dev/null) == "$wanted" ]] && return
    one_at_a_time
    [[ -x .venv/bin/pip ]] || step venv "Make a virtual environment" make_venv
    step venv-packages "Install the locked packages (torch is 2.6 GB: minutes at first)" install_locked_packages
    step venv-project "Install this project into it" install_project
    echo "$wanted" >"$STAMP"
}

make_venv() {
    check_python
    rm -rf .venv
    python3 -m venv .venv
}

install_locked_packages() {
    .venv/bin/pip install --disable-pip-version-check --require-hashes --requirement requirements-dev.lock
}

install_project() {
    .venv/bin/pip install --disable-pip-version-check --no-deps --no-build-isolation \
        --editable . --editable worker_image --editable plugin --editable local
}

cd "$ROOT"
main
