#!/usr/bin/env bash
# Checks the code without running it.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
source "$ROOT/hack/kind/tools.sh"

# .vale.ini has rules for files in these.
PROSE=(README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs examples hack/reference crds charts operator plugin local worker_image)
# Earlier commits followed another rule.
TITLES_SINCE=2b625eb4

ensure_vale() {
    # A program of `go install` has no version.
    place_tool vale "^vale version v?3\.(2[1-9]|[3-9][0-9])\." --version && return
    command -v go >/dev/null && command -v gcc >/dev/null || return 0
    # Its parsers are in C, and fast enough without optimization, which takes longer than all of their runs.
    WITH_CGO=1 CGO_CFLAGS="-O0 -w" build_tool vale "github.com/vale-cli/vale/v3/cmd/vale@$VALE_VERSION"
}

check_prose() {
    vale --no-global --output=line "${PROSE[@]}" | sort --unique
}

# Checks the commits that the upstream's main does not have yet, if the clone has the history.
check_titles() {
    git merge-base --is-ancestor "$TITLES_SINCE" HEAD || return 0
    ! git log --no-merges --format='%h %s' "$TITLES_SINCE..HEAD" --not --remotes=origin/main |
        LC_ALL=C.UTF-8 grep -E '^[^ ]+ (.{73}|.*\.$)'
}

cd "$ROOT"
step format "Format (ruff format --check)" .venv/bin/ruff format --check
step lint "Lint (ruff check)" .venv/bin/ruff check
# They run beside the other checks, as each takes one core, and most of the time.
step_start types "Types of the product and of hack (mypy)" .venv/bin/mypy
step_start types-oldest "Types of the worker's package for Python 3.10 (mypy)" .venv/bin/mypy --python-version 3.10 worker_image/elastic_pytorch
ensure_vale
if [[ -x $STATE/bin/vale ]]; then
    step prose "Prose (vale)" check_prose
else
    say "  ... Skip the prose: there is neither vale, nor Go and a C compiler to build it with"
fi
step titles "Titles of commits: at most 72 characters, no period at the end" check_titles
step layers "Layers (lint-imports)" .venv/bin/lint-imports
if command -v go >/dev/null; then
    build_tool actionlint "github.com/rhysd/actionlint/cmd/actionlint@$ACTIONLINT_VERSION"
    step workflows "Workflows (actionlint)" actionlint
fi
if command -v shellcheck >/dev/null; then
    mapfile -t scripts < <(find hack .ci -type f \( -name '*.sh' -o -path .ci/run \))
    step shell "Shell scripts (shellcheck)" shellcheck --external-sources --exclude SC1091,SC2153 "${scripts[@]}"
fi
step_wait types types-oldest
