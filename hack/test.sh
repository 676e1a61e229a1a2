#!/usr/bin/env bash
# As in CI: the fast half of the tests, then the half on the cluster, then the time of each and the growth.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
source hack/settings.sh

halves=$STATE/times/halves
mkdir -p "$STATE/times"
: >"$halves"
for half in fast e2e; do
    began=$SECONDS
    make --no-print-directory "test-$half"
    echo "$half $((SECONDS - began))" >>"$halves"
done
PYTHONPATH=hack/reference .venv/bin/python hack/growth.py
