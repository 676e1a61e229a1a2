#!/usr/bin/env bash
# What can be said about the code without running it.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
source "$ROOT/hack/step.sh"
source "$ROOT/hack/kind/tools.sh"

cd "$ROOT"
step format "Format (ruff format --check)" .venv/bin/ruff format --check
step lint "Lint (ruff check)" .venv/bin/ruff check
step types "Types (mypy)" .venv/bin/mypy
step types-oldest "Types of the worker's package for Python 3.10 (mypy)" .venv/bin/mypy --python-version 3.10 worker_image/elastic_pytorch
# Programs of a few modules each, not packages: each is checked with its own folder as the root.
for program in matrix prose reference release website; do
    step "types-$program" "Types of hack/$program (mypy)" env MYPYPATH="hack/$program" .venv/bin/mypy "hack/$program"
done
step types-measure "Types of hack/measure, demo, bench, replay, kubeflow, scale and soak (mypy)" env MYPYPATH=hack \
    .venv/bin/mypy --exclude '(replay|soak|kubeflow)/scripts' hack/measure hack/demo hack/bench hack/replay hack/kubeflow hack/scale hack/soak
for program in commit_cost.py images/load_image.py krew/release.py; do
    step "types-${program##*/}" "Types of hack/$program (mypy)" .venv/bin/mypy "hack/$program"
done
for program in growth_picture.py in_process_pause.py lost_peer.py object_storage_cost.py record_run.py shard_cost.py gpu; do
    step "types-$program" "Types of hack/$program (mypy)" env MYPYPATH=.:hack .venv/bin/mypy "hack/$program"
done
step prose "Prose (hack/prose)" .venv/bin/python hack/prose
step layers "Layers (lint-imports)" .venv/bin/lint-imports
if command -v go >/dev/null; then
    build_tool actionlint "github.com/rhysd/actionlint/cmd/actionlint@$ACTIONLINT_VERSION"
    step workflows "Workflows (actionlint)" actionlint
fi
if command -v shellcheck >/dev/null; then
    mapfile -t scripts < <(find hack .ci -type f \( -name '*.sh' -o -path .ci/run \))
    step shell "Shell scripts (shellcheck)" shellcheck --external-sources --exclude SC1091,SC2153 "${scripts[@]}"
fi
